"""A page of the docs that says which test holds which rule: a table whose rows begin with the rule and name tests in backquotes."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CITED = re.compile(
    r"`((?:client|unit|sim|spark|interop|rest|upgrade|property|scenario)/[\w/]+\.py)::(test_\w*)`"
)


def rows(page: str, rule: str) -> dict[str, str]:
    """Rule -> the rest of its row. `rule` is an expression for its name."""
    found = re.findall(rf"^\| ({rule}) \|(.*)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    assert len(found) == len(dict(found)), "each once"
    return dict(found)


def check(page: str, rule: str, wanted: list[str], unheld: frozenset[str] = frozenset()) -> None:
    """Every rule has its row, and every row names tests that exist, but for those that nothing holds yet."""
    found = rows(page, rule)
    assert list(found) == wanted
    for name, text in found.items():
        cited = _CITED.findall(text)
        assert bool(cited) != (name in unheld), f"{name} is held by {'something' if cited else 'nothing'}"
        for file, beginning in cited:
            path = ROOT / "tests" / file
            assert path.is_file(), f"{name}: {file}"
            assert re.search(rf"^(async )?def {beginning}", path.read_text(), re.MULTILINE), (
                f"{name}: {file}::{beginning}"
            )
