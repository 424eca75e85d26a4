"""F56: whoever runs a pipeline without Spark hears what to install, how large it is, and that it needs Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(
    ("options", "extra", "java"),
    [((), "headrace[spark]", True), (("--master", "sc://host:15002"), "headrace[spark-connect]", False)],
)
@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_f56_a_pipeline_without_spark(
    tmp_path: Path, missing: str, options: tuple[str, ...], extra: str, java: bool
) -> None:
    """As if it had never been installed: found first, and not there."""
    stub = f'raise ModuleNotFoundError("No module named {missing}", name="{missing}")'
    (tmp_path / f"{missing}.py").write_text(stub)
    definition = tmp_path / "p.toml"
    definition.write_text('kind = "archive"\nname = "p"\ntopics = ["t"]\npath = "a"\n')
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    ran = subprocess.run(
        [sys.executable, "-m", "headrace", "pipeline", "run", str(definition), *options],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stderr
    assert f"pip install '{extra}'" in ran.stderr and "GB" in ran.stderr, ran.stderr
    assert ("Java 17" in ran.stderr) is java
    assert "Traceback" not in ran.stderr


def test_f56_the_page_says_what_it_takes() -> None:
    page = (DOCS / "spark.md").read_text()
    for word in ("0.9 GB", "Java 17", "headrace[spark-connect]"):
        assert word in page
