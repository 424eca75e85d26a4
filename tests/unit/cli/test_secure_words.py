"""README and SECURITY.md show what `headrace serve --secure` prints, to the letter: only how long the start took is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace import __version__
from headrace.cli.serve import ServeRow, banner
from headrace.security.founding import SecureFiles

ROOT = Path(__file__).parents[3]
HOME = "/home/ann"


@pytest.mark.parametrize(("page", "lines"), [("README.md", 6), ("SECURITY.md", None)])
def test_the_page_shows_what_the_one_command_prints(
    page: str, lines: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it, or its first lines."""
    monkeypatch.setenv("HOME", str(tmp_path))
    data = tmp_path / ".local/share/headrace/local"
    files = SecureFiles(data / "security")
    files.directory.mkdir(parents=True)
    files.password.write_text("secret")
    row = ServeRow(
        version=__version__, kafka="localhost:9092", http="https://localhost:9324", kafka_port=9092, http_port=9324, node_id=1,
        cluster_id="", data_dir=str(data), durable=True, pid=1, ready_ms=0, console="https://localhost:9324/", mode="enforced",
        security_dir=str(data / "security"),
    )  # fmt: skip
    printed = "\n".join(banner(row).replace(str(tmp_path), HOME).splitlines()[:lines])
    text = (ROOT / page).read_text()
    (shown,) = re.findall(r"```\w+\n\$ headrace serve --secure\n(.*?)\n```", text, re.DOTALL)
    assert re.sub(r"ready in \S+", "ready in …", shown) == re.sub(r"ready in \S+", "ready in …", printed)
    assert "secret" not in shown.replace("secrets", "")
