"""Command: `headrace queue peek`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_queues_and_subscriptions
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Number
from headrace.cli.queue_view import MESSAGE_COLUMNS, QueueMessageRow, message_row


@leaf(QueueMessageRow, Shape.ITEMS, http=True)
@click.argument("name", shell_complete=complete_queues_and_subscriptions)
@click.option("-n", "--max", "count", type=Number(1, 1000), default=10, show_default=True)
def command(run: Invocation, name: str, count: int) -> None:
    """Look at messages without taking them. Nothing changes, and nothing is counted."""
    found = run.http.ask("GET", f"/queues/{part(name)}/messages", query={"peek": "1", "max": str(count)})
    rows = [message_row(item) for item in found["items"]]
    if not rows:
        run.note("Nothing is ready.")
    run.output.items(QueueMessageRow, rows, MESSAGE_COLUMNS)
