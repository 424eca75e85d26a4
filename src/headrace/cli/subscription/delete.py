"""Command: `headrace subscription delete`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_subscriptions
from headrace.cli.failure import Exit
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.queue.delete import DeletedQueueRow, delete_queues


@leaf(DeletedQueueRow, Shape.ITEMS, http=True, confirms=True, dry_run=True)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_subscriptions)
def command(run: Invocation, names: tuple[str, ...], dry_run: bool) -> Exit:
    """End subscriptions; the topics stay."""
    return delete_queues(run, names, keep_topic=True, dry_run=dry_run)
