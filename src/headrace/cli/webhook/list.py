"""Command: `headrace webhook list`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_queues_and_subscriptions
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.webhook_view import WEBHOOK_COLUMNS, WebhookRow, webhook_row


@leaf(WebhookRow, Shape.ITEMS, http=True)
@click.option("--queue", help="Only those of this queue.", shell_complete=complete_queues_and_subscriptions)
def command(run: Invocation, queue: str | None) -> None:
    """List the webhooks and how they fare."""
    items = run.http.all_items("/api/v1/webhooks")
    rows = [webhook_row(item) for item in items if queue is None or item["queue"] == queue]
    if not rows:
        run.note("No webhooks yet. Add one with:  headrace webhook add QUEUE https://example.com/hook")
    run.output.items(WebhookRow, rows, WEBHOOK_COLUMNS)
