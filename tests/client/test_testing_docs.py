"""F46: every program of docs/testing.md, as the test file that a reader would make of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from shell_blocks import blocks

pytestmark = pytest.mark.client

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def test_f46_the_recipes_of_the_testing_page_work(tmp_path: Path) -> None:
    """In one run of pytest, from an empty directory: the plugin is there because Headrace is installed."""
    # Spark's is run with the other tests of Spark: tests/spark/test_docs.py.
    recipes = [
        step for block in blocks(PAGE) if block.is_python for step in block.steps if "pyspark" not in step
    ]
    assert len(recipes) >= 10
    for number, recipe in enumerate(recipes):
        (tmp_path / f"test_recipe_{number}.py").write_text(recipe)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-rA"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr
    assert f"{len(recipes)} passed" in ran.stdout, ran.stdout
