"""Who decides about colours: --no-color and NO_COLOR, then FORCE_COLOR, then CLICOLOR, then whether somebody looks."""

from __future__ import annotations

import io

import pytest

from headrace.cli.invocation import Invocation


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "on_a_screen", "in_a_pipe"),
    [
        ({}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
        ({"CLICOLOR": "0"}, False, False),
        ({"CLICOLOR": "0", "FORCE_COLOR": "1"}, True, True),
    ],
)
def test_who_decides(
    variables: dict[str, str], on_a_screen: bool, in_a_pipe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    run = Invocation()
    assert (run.colours(Screen()), run.colours(io.StringIO())) == (on_a_screen, in_a_pipe)
    run.no_colour = True
    assert not run.colours(Screen())
