"""docs/to-the-letter.md names every finding of its issue, and nothing in it names a test that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "to-the-letter.md"
CITED = re.compile(r"`((?:client|unit|sim|spark|interop|torture|property)/[\w/]+\.py)::(test_\w*)`")
FINDINGS = [2, 3, *range(11, 15), 25, 28, 32, 33, *range(35, 40), 45, 46, 48, *range(50, 58), 79, 80, 81]


def rows() -> dict[str, str]:
    found = re.findall(r"^\| (F\d+) \|(.*)$", PAGE.read_text(), re.MULTILINE)
    assert len(found) == len(dict(found)), "each once"
    return dict(found)


def test_every_finding_has_its_row() -> None:
    assert list(rows()) == [f"F{number}" for number in FINDINGS]


@pytest.mark.parametrize("finding", [f"F{number}" for number in FINDINGS])
def test_every_row_names_tests_and_each_of_them_exists(finding: str) -> None:
    cited = CITED.findall(rows()[finding])
    assert cited, "held by nothing"
    assert rows()[finding].count("::") == len(cited), "each citation is one that we understand"
    texts = []
    for file, beginning in cited:
        path = ROOT / "tests" / file
        assert path.is_file(), file
        text = path.read_text()
        assert re.search(rf"^\s*(async )?def {beginning}", text, re.MULTILINE), f"{file}::{beginning}"
        texts.append(text)
    assert any(re.search(rf"\b{finding}\b|_{finding.lower()}_", text) for text in texts), (
        "none of them says so"
    )
