"""F81: `make demo` shows all it promises, and where it can't, says which promise was not shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.client, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]


def test_f81_without_java_the_demo_says_what_it_did_not_show(tmp_path: Path) -> None:
    """With a PATH on which there is everything but Java."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("uname", "env", "sh", "ps"):
        found = next(place for place in (Path("/bin") / tool, Path("/usr/bin") / tool) if place.exists())
        (tools / tool).symlink_to(found)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
        "PATH": str(tools),
        "HEADRACE_DEMO_MESSAGES": "3000",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not shown:" in done.stdout, done.stdout
    assert "All promises kept but one that was not shown: the Spark pipeline" in done.stdout
    assert "All promises kept, in" not in done.stdout


def test_f81_the_demo_gets_java_as_the_tests_do() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (demo,) = re.findall(r"^demo:.*\n((?:\t.*\n)+)", makefile, re.M)
    assert "scripts/system-packages openjdk-17-jre-headless=java" in demo
