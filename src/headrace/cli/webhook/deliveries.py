"""Command: `headrace webhook deliveries`."""

from __future__ import annotations

from typing import ClassVar

import click
import msgspec

from headrace.cli.completing import complete_webhooks
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column
from headrace.cli.parameters import Number
from headrace.cli.webhook_view import path_of
from headrace.core.moments import rfc3339


class DeliveryRow(Row):
    SCHEMA: ClassVar[str] = "headrace.webhook.deliveries/v1"
    NAME: ClassVar[str] = "id"
    id: str
    at_ms: int
    message_id: str
    messages: int
    """More than one in a batch."""
    topic: str
    partition: int
    offset: int
    attempt: int
    outcome: str
    """delivered, failed, gone or refused."""
    status: int
    """0: there was no answer."""
    duration_ms: int
    detail: str
    next_ms: int
    """When it is tried again; 0 when that is not planned."""


COLUMNS = [
    Column("AT", lambda row: rfc3339(row.at_ms), whole=True),
    column("OUTCOME", "outcome"),
    Column("STATUS", lambda row: row.status or None, True),
    column("MS", "duration_ms", right=True),
    column("ATTEMPT", "attempt", right=True),
    column("MESSAGE", "message_id"),
    Column("MORE", lambda row: f"+{row.messages - 1}" if row.messages > 1 else None),
    Column("DETAIL", lambda row: row.detail or None),
    column("ID", "id", wide=True),
    Column("NEXT", lambda row: rfc3339(row.next_ms) if row.next_ms else None, wide=True),
]


@leaf(DeliveryRow, Shape.ITEMS, http=True)
@click.argument("name", shell_complete=complete_webhooks)
@click.option("-n", "--max", "count", type=Number(1, 200), default=20, show_default=True)
@click.option("--failed", is_flag=True, help="Only those that were not taken.")
def command(run: Invocation, name: str, count: int, failed: bool) -> None:
    """Show what became of the last deliveries, the newest first."""
    query = {"limit": str(count), **({"failed": ""} if failed else {})}
    page = run.http.ask("GET", path_of(name, "deliveries"), query=query)
    rows = [msgspec.convert(item, DeliveryRow) for item in page["items"]]
    if not rows:
        run.note("Nothing was sent yet.")
    run.output.items(DeliveryRow, rows, COLUMNS)
