"""F46: the commands of docs/pipelines.md about pipelines as a service, followed to the letter by somebody with an empty home directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from manual_reader import Reader, follow

pytestmark = pytest.mark.timeout(900)
PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"


def test_f46_from_nothing_to_a_supervised_table(java: None, tmp_path: Path) -> None:
    page = tmp_path / "service.md"
    page.write_text(PAGE.read_text().partition("## As a service\n")[2].partition("\n## ")[0])
    reader = Reader(tmp_path / "home")
    try:
        follow(reader, page)
    finally:
        reader.leave()
    assert (tmp_path / "home" / "warehouse" / "catalog.db").exists()
