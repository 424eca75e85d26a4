"""Command: `headrace subscription create`."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli.completing import complete_queues, complete_topics
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Duration, Number
from headrace.cli.queue_view import QueueRow, queue_row


@leaf(QueueRow, Shape.ONE, http=True)
@click.argument("name")
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@click.option(
    "--filter", "filter_text", default="", help="Only messages that match, as in: headers.kind == 'a'"
)
@click.option(
    "--from", "start", type=click.Choice(["earliest", "latest"]), default="latest", show_default=True
)
@click.option(
    "--dlq",
    "dead_letter",
    metavar="QUEUE",
    help="Where messages go that failed too often.",
    shell_complete=complete_queues,
)
@click.option("--max-receives", type=Number(1), help="So many deliveries, then to the dead letters.")
@click.option(
    "--visibility", "visibility_ms", type=Duration(), help="How long a receiver may keep a message."
)
def command(
    run: Invocation,
    name: str,
    topics: tuple[str, ...],
    filter_text: str,
    start: str,
    dead_letter: str | None,
    max_receives: int | None,
    visibility_ms: int | None,
) -> None:
    """Subscribe to topics. A subscription is read like a queue, with `headrace queue receive NAME`."""
    if topics == (name,):
        raise Failure(Exit.USAGE, "a subscription needs a name of its own, not the topic's")
    body: dict[str, Any] = {"name": name, "topics": list(topics), "filter": filter_text, "start": start}
    if dead_letter is not None:
        body |= {"dead_letter": dead_letter, "max_deliveries": max_receives or 5}
    if visibility_ms is not None:
        body["visibility_ms"] = visibility_ms
    row = queue_row(run.http.ask("POST", "/api/v1/queues", body))
    run.output.one(row, lambda: "")
    run.done(f"Subscribed {name} to {', '.join(topics)}. Try:  headrace queue receive {name} --wait 20s")
