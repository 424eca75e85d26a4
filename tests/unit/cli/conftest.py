from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import main

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("topic", "list", "--json")` in an empty directory, with no settings of whoever runs the tests."""
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    for variable in (
        "HEADRACE_BOOTSTRAP",
        "HEADRACE_URL",
        "HEADRACE_CONTEXT",
        "HEADRACE_OUTPUT",
        "HEADRACE_DATA_DIR",
        "FORCE_COLOR",
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str, **options: object) -> Result:
        return CliRunner().invoke(main, list(arguments), prog_name="headrace", **options)  # type: ignore[arg-type]

    return invoke
