"""Command: `headrace topic trace`."""

from __future__ import annotations

from typing import ClassVar

import click
import msgspec

from headrace.cli.completing import complete_topics
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column, moment
from headrace.cli.parameters import LAST_OFFSET, Number


class TraceRow(Row):
    SCHEMA: ClassVar[str] = "headrace.topic.trace/v1"
    kind: str
    name: str
    state: str
    """read or not-yet for a group; ready, locked, waiting, dying, done or not-yet for a queue."""
    committed: int | None
    ahead: int | None
    """Messages that the group reads before it, and this one."""
    deliveries: int | None
    holder: str | None
    due: str | None
    """When its lock, or its wait, ends."""
    dead_letter: str


COLUMNS = [
    column("KIND", "kind"),
    column("NAME", "name"),
    column("STATE", "state"),
    Column("AHEAD", lambda row: row.ahead or None, right=True),
    Column("DELIVERIES", lambda row: row.deliveries, right=True),
    Column("HOLDER", lambda row: row.holder),
    moment("UNTIL", "due"),
]


@leaf(TraceRow, Shape.ITEMS, http=True)
@click.argument("name", shell_complete=complete_topics)
@click.argument("partition", type=Number(0))
@click.argument("offset", type=Number(0, LAST_OFFSET))
def command(run: Invocation, name: str, partition: int, offset: int) -> None:
    """Show what became of a message: which groups have read it, and in what state it is in each queue. Nothing changes."""
    found = run.http.ask("GET", f"/topics/{part(name)}/records/{partition}/{offset}/readers")
    rows = msgspec.convert(found["items"], list[TraceRow])
    if not rows:
        run.note("No group and no queue reads this topic.")
    run.output.items(TraceRow, rows, COLUMNS)
