"""Command: `headrace dlq peek`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_queues
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Shape, column
from headrace.cli.parameters import Number
from headrace.cli.queue_view import QueueMessageRow, message_row, short


@leaf(QueueMessageRow, Shape.ITEMS, http=True)
@click.argument("name", shell_complete=complete_queues)
@click.option("-n", "--max", "count", type=Number(1, 1000), default=10, show_default=True)
def command(run: Invocation, name: str, count: int) -> None:
    """Look at dead letters and why they are there. Nothing changes."""
    found = run.http.ask("GET", f"/queues/{part(name)}/messages", query={"peek": "1", "max": str(count)})
    rows = [message_row(item) for item in found["items"]]
    if not rows:
        run.note("No dead letters here.")
    columns = [
        column("ID", "message_id"),
        Column("FROM", lambda row: row.headers.get("headrace-dead-source")),
        Column("REASON", lambda row: row.headers.get("headrace-dead-reason")),
        Column("ERROR", lambda row: short(row.headers.get("headrace-dead-detail") or "") or None),
        Column("DELIVERIES", lambda row: row.headers.get("headrace-dead-deliveries"), True),
        Column("VALUE", lambda row: short(row.value)),
    ]
    run.output.items(QueueMessageRow, rows, columns)
