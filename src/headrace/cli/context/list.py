"""Command: `headrace context list`."""

from __future__ import annotations

from headrace.cli.context_view import ContextRow, context_row
from headrace.cli.contexts import Contexts
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Shape, column


@leaf(ContextRow, Shape.ITEMS)
def command(run: Invocation) -> None:
    """List contexts. A star marks the one in use."""
    contexts = Contexts()
    in_use = contexts.in_use
    rows = [context_row(name, contexts.need(name), in_use) for name in contexts.names()]
    columns = [
        Column("", lambda row: "*" if row.in_use else ""),
        column("NAME", "name"),
        column("KAFKA", "bootstrap"),
        Column("HTTP", lambda row: row.url or "(asked)"),
        Column("USER", lambda row: row.user or "-"),
    ]
    run.output.items(ContextRow, rows, columns)
    if not rows:
        run.note(
            "There are none: commands go to localhost:9092. Add one:  headrace context add NAME -b HOST:PORT"
        )
