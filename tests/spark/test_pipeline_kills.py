"""`make pipeline-kills` in short: a table whose JVM is killed under it, and then its driver. Long runs: docs/proofs.md."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("java")
def test_a_table_whose_jvm_and_driver_are_killed_has_every_row_once() -> None:
    from pipeline_kills import kill_pipelines

    # A run that has lost its JVM goes on with another: PySpark would hand out the dead session for ever (decision 0125).
    report = kill_pipelines("table", 2, 1, deaths=["java", "driver"])
    assert report.deaths == {"java": 1, "driver": 1} and report.rows
