"""K8: the demonstration that crashes on purpose shows what it promises: loss, repetition, neither."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "delivery.py"


@pytest.mark.client
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_demonstration_keeps_its_promise() -> None:
    shown = subprocess.run([sys.executable, str(DEMO)], capture_output=True, timeout=220, check=False)
    text = shown.stdout.decode()
    assert shown.returncode == 0, text + shown.stderr.decode()
    rows = {
        cells[0]: [int(cell.replace(",", "")) for cell in cells[1:]]
        for line in text.splitlines()
        if len(cells := [cell.strip() for cell in line.strip("│ ").split("│")]) == 5
    }
    assert rows["at-most-once"][2] > 0 and rows["at-most-once"][3] == 0
    assert rows["at-least-once"][2] == 0 and rows["at-least-once"][3] > 0
    assert rows["exactly-once"][1:] == [1000, 0, 0]
