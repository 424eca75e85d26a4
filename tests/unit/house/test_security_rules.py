"""docs/security-rules.md names every rule and every proof of security, and nothing in it names a test that is not there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "security-rules.md"
CITED = re.compile(r"`((?:client|unit|sim|spark|interop)/[\w/]+\.py)::(test_\w*)`")
NOT_DONE = {"P3", "P8", "P15", "P18", "P19"}
"""Proofs without a test of pytest."""


def rows() -> dict[str, str]:
    found = re.findall(r"^\| ([AP]\d+) \|(.*)$", PAGE.read_text(), re.MULTILINE)
    assert len(found) == len(dict(found)), "each once"
    return dict(found)


def test_every_rule_and_every_proof_has_its_row() -> None:
    wanted = [f"A{number}" for number in range(9, 66)] + [f"P{number}" for number in range(1, 20)]
    assert list(rows()) == wanted


def test_every_row_names_tests_and_each_of_them_exists() -> None:
    for rule, text in rows().items():
        cited = CITED.findall(text)
        assert cited or rule in NOT_DONE, f"{rule} is held by nothing"
        for file, beginning in cited:
            path = ROOT / "tests" / file
            assert path.is_file(), f"{rule}: {file}"
            assert re.search(rf"^(async )?def {beginning}", path.read_text(), re.MULTILINE), (
                f"{rule}: {file}::{beginning}"
            )
