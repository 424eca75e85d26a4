"""Command: `headrace key list`."""

from __future__ import annotations

from headrace.cli.invocation import Invocation
from headrace.cli.key_view import KEYS, KeyRow, key_row
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape, column, last_used


@leaf(KeyRow, Shape.ITEMS, http=True)
def command(run: Invocation) -> None:
    """List access keys. Your own; an administrator sees everybody's."""
    rows = [key_row(found) for found in run.http.ask("GET", KEYS)["items"]]
    columns = [column("ID", "id", whole=True), column("OWNER", "owner"), column("FOR", "name"), last_used()]
    run.output.items(KeyRow, rows, columns)
    if not rows:
        run.note("No access keys yet. Make one with:  headrace key create")
