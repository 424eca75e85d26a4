"""docs/table-rules.md names every rule of tables and pipelines, and the tests that it names exist."""

from __future__ import annotations

from rule_page import check


def test_every_rule_of_tables_and_pipelines_is_held_by_tests_that_exist() -> None:
    check("table-rules.md", r"T\d+", [f"T{number}" for number in range(1, 20)])
