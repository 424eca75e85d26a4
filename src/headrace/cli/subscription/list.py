"""Command: `headrace subscription list`."""

from __future__ import annotations

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Shape
from headrace.cli.queue_view import QUEUE_COLUMNS, QueueRow, queue_row


@leaf(QueueRow, Shape.ITEMS, http=True)
def command(run: Invocation) -> None:
    """List the subscriptions."""
    rows = [queue_row(item) for item in run.http.all_items("/api/v1/queues", {"kind": "subscription"})]
    if not rows:
        run.note("No subscriptions yet. Make one with:  headrace subscription create NAME TOPIC")
    columns = [
        QUEUE_COLUMNS[0],
        Column("TOPICS", lambda row: ", ".join(row.topics)),
        Column("FILTER", lambda row: row.filter or None),
        *QUEUE_COLUMNS[1:],
    ]
    run.output.items(QueueRow, rows, columns)
