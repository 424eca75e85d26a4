"""Command: `headrace queue locks`."""

from __future__ import annotations

from typing import ClassVar

import click
import msgspec

from headrace.cli.completing import complete_queues_and_subscriptions
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column
from headrace.core.units import format_age_ms


class LockRow(Row):
    SCHEMA: ClassVar[str] = "headrace.queue.locks/v1"
    NAME: ClassVar[str] = "offset"
    topic: str
    partition: int
    offset: int
    deliveries: int
    holder: str | None
    ends_in_ms: int
    visibility_ms: int
    received_ms: int


COLUMNS = [
    column("TOPIC", "topic", wide=True),
    column("PARTITION", "partition", right=True),
    column("OFFSET", "offset", right=True),
    column("DELIVERIES", "deliveries", right=True),
    Column("HOLDER", lambda row: row.holder),
    Column("ENDS IN", lambda row: format_age_ms(row.ends_in_ms), True),
]


@leaf(LockRow, Shape.ITEMS, http=True)
@click.argument("name", shell_complete=complete_queues_and_subscriptions)
def command(run: Invocation, name: str) -> None:
    """Show who holds which message, and for how long still. Nothing changes."""
    found = run.http.ask("GET", f"/api/v1/queues/{part(name)}/locks")
    rows = msgspec.convert(found["items"], list[LockRow])
    if not rows:
        run.note("Nobody holds a message of this queue.")
    run.output.items(LockRow, rows, COLUMNS)
