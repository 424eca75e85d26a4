"""S3: the driver dies between write and commit; every row is there once. `kill_driver.py --kills 20` does it for long."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("java")
def test_the_driver_killed_between_write_and_commit() -> None:
    from kill_driver import kill_many

    died, found, total = kill_many(1)
    assert died == 1
    assert sorted(found) == list(range(total)) and set(found.values()) == {1}
