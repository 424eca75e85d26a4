"""Command: `headrace subscription set`."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli.completing import complete_queues, complete_subscriptions
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Duration, Number
from headrace.cli.queue.set import change_queue
from headrace.cli.queue_view import QueueRow


@leaf(QueueRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_subscriptions)
@click.option("--filter", "filter_text", help="Only messages that match; empty takes the filter away.")
@click.option(
    "--dlq", "dead_letter", metavar="QUEUE", shell_complete=complete_queues,
    help="Where messages go that failed too often.",
)  # fmt: skip
@click.option("--max-receives", type=Number(0), help="So many deliveries; 0 is no limit.")
@click.option(
    "--visibility", "visibility_ms", type=Duration(), help="How long a receiver may keep a message."
)
@click.option("--pause/--resume", "paused", default=None, help="Hand out nothing more, or again.")
def command(
    run: Invocation,
    name: str,
    filter_text: str | None,
    dead_letter: str | None,
    max_receives: int | None,
    visibility_ms: int | None,
    paused: bool | None,
) -> None:
    """Change the settings of a subscription; pause and resume it."""
    given: dict[str, Any] = {
        "filter": filter_text,
        "dead_letter": dead_letter,
        "max_deliveries": max_receives,
        "visibility_ms": visibility_ms,
    }
    body = {key: value for key, value in given.items() if value is not None}
    change_queue(run, name, body, paused, "subscription")
