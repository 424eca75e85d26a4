"""P18: every switch-off is one place of the source as it is now, and names a test that exists."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from security_switch_offs import SWITCH_OFFS, SwitchOff

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("off", SWITCH_OFFS, ids=lambda off: f"{off.rule}-{Path(off.file).stem}")
def test_p18_a_switch_off_is_one_place_and_its_test_is_there(off: SwitchOff) -> None:
    source = (ROOT / "src" / "headrace" / off.file).read_text()
    assert source.count(off.before) == 1
    compile(source.replace(off.before, off.after), off.file, "exec")
    file, _, name = off.test.partition("::")
    assert re.search(rf"^(async )?def {name}", (ROOT / "tests" / file).read_text(), re.MULTILINE)
