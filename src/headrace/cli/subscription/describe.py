"""Command: `headrace subscription describe`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_subscriptions
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.queue.describe import DescribedQueue, describe_queue


@leaf(DescribedQueue, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_subscriptions)
def command(run: Invocation, name: str) -> None:
    """Show a subscription with its settings."""
    describe_queue(run, name)
