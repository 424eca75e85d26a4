"""Command: `headrace queue set`."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli.completing import complete_queues, complete_queues_and_subscriptions
from headrace.cli.failure import Exit, Failure
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Duration, Number
from headrace.cli.queue_view import QueueRow, queue_row


@leaf(QueueRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_queues_and_subscriptions)
@click.option(
    "--dlq",
    "dead_letter",
    metavar="QUEUE",
    help="Where messages go that failed too often.",
    shell_complete=complete_queues,
)
@click.option("--max-receives", type=Number(0), help="So many deliveries; 0 is no limit.")
@click.option("--delay", "delay_ms", type=Duration(), help="Every new message rests this long first.")
@click.option(
    "--visibility", "visibility_ms", type=Duration(), help="How long a receiver may keep a message."
)
@click.option("--filter", "filter_text", help="Only messages that match; empty takes the filter away.")
@click.option("--max-partitions", type=Number(0), help="Follow the load with so many; 0 stops that.")
@click.option("--priorities/--no-priorities", default=None, help="Messages may have a priority from 0 to 9.")
@click.option("--ttl/--no-ttl", default=None, help="Messages may expire.")
@click.option("--pause/--resume", "paused", default=None, help="Hand out nothing more, or again.")
def command(
    run: Invocation,
    name: str,
    dead_letter: str | None,
    max_receives: int | None,
    delay_ms: int | None,
    visibility_ms: int | None,
    filter_text: str | None,
    max_partitions: int | None,
    priorities: bool | None,
    ttl: bool | None,
    paused: bool | None,
) -> None:
    """Change the settings of a queue; pause and resume it."""
    given = {
        "dead_letter": dead_letter,
        "max_deliveries": max_receives,
        "default_delay_ms": delay_ms,
        "visibility_ms": visibility_ms,
        "filter": filter_text,
        "priorities": priorities,
        "ttl": ttl,
    }
    body: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if max_partitions is not None:
        body["elastic"] = {"max_partitions": max_partitions} if max_partitions else None
    change_queue(run, name, body, paused, "queue")


def change_queue(run: Invocation, name: str, body: dict[str, Any], paused: bool | None, noun: str) -> None:
    if not body and paused is None:
        raise Failure(
            Exit.USAGE, "nothing to change was given", f"headrace {noun} set --help lists what can be"
        )
    path = f"/api/v1/queues/{part(name)}"
    if paused is not None:
        run.http.ask("POST", f"{path}/{'pause' if paused else 'resume'}")
    row = queue_row(run.http.ask("PATCH", path, body) if body else run.http.ask("GET", path))
    run.output.one(row, lambda: "")
    run.done(f"Changed the {noun} {name}")
