"""Command: `headrace queue groups`."""

from __future__ import annotations

from typing import ClassVar

import click
import msgspec

from headrace.cli.completing import complete_queues_and_subscriptions
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column, moment


class MessageGroupRow(Row):
    SCHEMA: ClassVar[str] = "headrace.queue.groups/v1"
    NAME: ClassVar[str] = "group"
    group: str
    blocked: bool
    """The rest waits until one message is done."""
    waiting: int
    in_flight: int
    resting: int
    topic: str
    partition: int
    by_offset: int | None
    """Of the message that the others wait for."""
    deliveries: int
    holder: str | None
    due: str | None
    """When the lock of that message, or its rest, ends."""


COLUMNS = [
    column("GROUP", "group"),
    Column("BLOCKED BY", lambda row: None if row.by_offset is None else f"{row.partition}@{row.by_offset}"),
    column("WAITING", "waiting", right=True),
    column("DELIVERIES", "deliveries", right=True),
    Column("HOLDER", lambda row: row.holder),
    moment("UNTIL", "due"),
    column("TOPIC", "topic", wide=True),
]


@leaf(MessageGroupRow, Shape.ITEMS, http=True)
@click.argument("name", shell_complete=complete_queues_and_subscriptions)
def command(run: Invocation, name: str) -> None:
    """Show what waits for what in a FIFO queue: which message groups are held up, by which message, until when."""
    found = run.http.ask("GET", f"/api/v1/queues/{part(name)}/groups")
    rows = msgspec.convert(found["items"], list[MessageGroupRow])
    if not rows:
        run.note("No message group holds anything." if found["fifo"] else "This is not a FIFO queue.")
    run.output.items(MessageGroupRow, rows, COLUMNS)
