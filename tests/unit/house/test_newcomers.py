"""docs/newcomers.md leads where it says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PLACE = re.compile(r"`([\w/]+\.py): (\w+)`")


def test_every_look_up_is_there_and_counted() -> None:
    page = (ROOT / "docs" / "newcomers.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(rows) == 12
    for row in rows:
        places = PLACE.findall(row[4])
        assert len(places) == int(row[3]), row[2]
        for file, name in places:
            defined = re.compile(rf"^ *(async def|def|class) {name}\b|^{name}\b.* =", re.MULTILINE)
            assert defined.search((ROOT / "src/headrace" / file).read_text()), f"{row[2]} {file}: {name}"
    assert f"{sum(int(row[3]) for row in rows)} look-ups" in page
