"""Command: `headrace token delete`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_tokens
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column
from headrace.cli.token_view import TOKENS


class DeletedTokenRow(Row):
    SCHEMA: ClassVar[str] = "headrace.token.delete/v1"
    NAME: ClassVar[str] = "id"
    id: str
    status: str


@leaf(DeletedTokenRow, Shape.ITEMS, http=True)
@click.argument("ids", nargs=-1, required=True, shell_complete=complete_tokens)
def command(run: Invocation, ids: tuple[str, ...]) -> None:
    """Delete tokens by their ids. They are good for nothing at once, at every broker."""
    for each in ids:
        run.http.ask("DELETE", f"{TOKENS}/{part(each)}")
    rows = [DeletedTokenRow(id=each, status="deleted") for each in ids]
    run.output.items(DeletedTokenRow, rows, [column("ID", "id"), column("STATUS", "status")])
