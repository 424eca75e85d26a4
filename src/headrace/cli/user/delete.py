"""Command: `headrace user delete`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_users
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column
from headrace.cli.user_view import path_of


class DeletedUserRow(Row):
    SCHEMA: ClassVar[str] = "headrace.user.delete/v1"
    name: str
    status: str


@leaf(DeletedUserRow, Shape.ITEMS, http=True, confirms=True)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_users)
def command(run: Invocation, names: tuple[str, ...]) -> None:
    """Delete users; open connections end. Their rights stay until they are removed."""
    run.confirm(f"delete {', '.join(names)}")
    for name in names:
        run.http.ask("DELETE", path_of(name))
    rows = [DeletedUserRow(name=name, status="deleted") for name in names]
    run.output.items(DeletedUserRow, rows, [column("NAME", "name"), column("STATUS", "status")])
