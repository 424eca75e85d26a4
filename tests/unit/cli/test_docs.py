"""The generated pages say what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_generated_pages_are_up_to_date() -> None:
    """`make docs` writes them anew."""
    ran = subprocess.run(
        [sys.executable, "scripts/generate-docs", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_links_between_our_pages_lead_somewhere() -> None:
    import re

    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []
    # The manual is a site as well, which has nothing but the pages of docs: make site refuses what leads out of them.
    manual = ROOT / "docs"
    outside = [
        f"{page.name}: {target}"
        for page in manual.rglob("*.md")
        for target in re.findall(r"\]\(([^)#:]+)[^)]*\)", page.read_text())
        if not (page.parent / target).resolve().is_relative_to(manual)
    ]
    assert outside == []
