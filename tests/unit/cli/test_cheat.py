"""The page of commands: every one of them is taken as it stands, and all of it fits a small terminal."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

import click
import pytest
from click.testing import Result

from headrace.cli.cheat import PAGE
from headrace.cli.invocation import Invocation
from headrace.cli.main import main

Run = Callable[..., Result]
LINES = [line for lines in PAGE.values() for line, _ in lines]


@pytest.mark.parametrize("line", LINES)
def test_every_line_is_a_command_as_it_stands(line: str) -> None:
    """Parsed with all its arguments and values; not carried out."""
    name, *words = shlex.split(line)
    assert name == "headrace"
    command: click.Command = main
    ctx = click.Context(main, info_name="headrace", obj=Invocation())
    while isinstance(command, click.Group):
        found = command.get_command(ctx, words[0])
        assert found is not None, line
        command, parent = found, ctx
        name, words = words[0], words[1:]
        if isinstance(command, click.Group):
            ctx = click.Context(command, info_name=name, parent=parent)
    command.make_context(name, words, parent=ctx)


def test_it_is_one_page_of_eighty_columns(run: Run) -> None:
    lines = run("cheat").stdout.splitlines()
    assert len(lines) <= 50 and max(map(len, lines)) <= 80, [line for line in lines if len(line) > 80]


def test_one_part_of_it_and_json(run: Run) -> None:
    rows = json.loads(run("cheat", "queue", "--json").stdout)["items"]
    assert {row["about"] for row in rows} == {"queue"}
    assert run("cheat", "nothing").exit_code == 2
