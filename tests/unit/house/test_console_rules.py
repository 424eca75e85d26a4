"""docs/console-rules.md names every rule and every row of the console's acceptance, and nothing in it names a test that is not there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "console-rules.md"
CITED = re.compile(r"`((?:client|unit|sim|spark|interop)/[\w/]+\.py)::(test_\w*)`")


def rows() -> dict[str, str]:
    found = re.findall(r"^\| (W?\d+) \|(.*)$", PAGE.read_text(), re.MULTILINE)
    assert len(found) == len(dict(found)), "each once"
    return dict(found)


def test_every_rule_and_every_row_is_there() -> None:
    assert list(rows()) == [f"W{number}" for number in range(1, 24)] + [
        str(number) for number in range(1, 18)
    ]


def test_every_rule_names_tests_and_each_of_them_exists() -> None:
    for rule, text in rows().items():
        cited = CITED.findall(text)
        assert cited, f"{rule} is held by nothing"
        for file, beginning in cited:
            path = ROOT / "tests" / file
            assert path.is_file(), f"{rule}: {file}"
            assert re.search(rf"^(async )?def {beginning}", path.read_text(), re.MULTILINE), (
                f"{rule}: {file}::{beginning}"
            )
