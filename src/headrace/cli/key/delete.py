"""Command: `headrace key delete`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_keys
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.key_view import KEYS
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column


class DeletedKeyRow(Row):
    SCHEMA: ClassVar[str] = "headrace.key.delete/v1"
    NAME: ClassVar[str] = "id"
    id: str
    status: str


@leaf(DeletedKeyRow, Shape.ITEMS, http=True)
@click.argument("ids", nargs=-1, required=True, shell_complete=complete_keys)
def command(run: Invocation, ids: tuple[str, ...]) -> None:
    """Delete access keys. Nothing that is signed with them is heard any more, at any broker."""
    for each in ids:
        run.http.ask("DELETE", f"{KEYS}/{part(each)}")
    rows = [DeletedKeyRow(id=each, status="deleted") for each in ids]
    run.output.items(DeletedKeyRow, rows, [column("ID", "id"), column("STATUS", "status")])
