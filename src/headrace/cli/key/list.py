"""Command: `headrace key list`."""

from __future__ import annotations

from headrace.cli.invocation import Invocation
from headrace.cli.key_view import KEYS, KeyRow, key_row
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape, column


@leaf(KeyRow, Shape.ITEMS, http=True)
def command(run: Invocation) -> None:
    """List access keys. Your own; an administrator sees everybody's."""
    rows = [key_row(found) for found in run.http.ask("GET", KEYS)["items"]]
    run.output.items(
        KeyRow, rows, [column("ID", "id", whole=True), column("OWNER", "owner"), column("FOR", "name")]
    )
