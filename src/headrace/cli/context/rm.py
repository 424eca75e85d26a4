"""Command: `headrace context rm`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_contexts
from headrace.cli.contexts import Contexts
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column


class RemovedContextRow(Row):
    SCHEMA: ClassVar[str] = "headrace.context.rm/v1"
    name: str
    status: str


@leaf(RemovedContextRow, Shape.ITEMS)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_contexts)
def command(run: Invocation, names: tuple[str, ...]) -> None:
    """Remove contexts. With the passwords that were typed in for them; files of your own stay."""
    contexts = Contexts()
    for name in names:
        contexts.need(name)
    was_in_use = contexts.in_use
    for name in names:
        contexts.remove(name)
    rows = [RemovedContextRow(name=name, status="removed") for name in names]
    run.output.items(RemovedContextRow, rows, [column("NAME", "name"), column("STATUS", "status")])
    if was_in_use in names:
        run.note("None is in use now.  headrace context use NAME")
