"""Command: `headrace queue list`."""

from __future__ import annotations

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.queue_view import QUEUE_COLUMNS, QueueRow, queue_row


@leaf(QueueRow, Shape.ITEMS, http=True)
def command(run: Invocation) -> None:
    """List the queues."""
    rows = [queue_row(item) for item in run.http.all_items("/api/v1/queues", {"kind": "queue"})]
    if not rows:
        run.note("No queues yet. Create one with:  headrace queue create NAME")
    run.output.items(QueueRow, rows, QUEUE_COLUMNS)
