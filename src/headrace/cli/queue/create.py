"""Command: `headrace queue create`."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli.completing import complete_queues
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Duration, Number
from headrace.cli.queue_view import QueueRow, queue_row


@leaf(QueueRow, Shape.ONE, http=True)
@click.argument("name")
@click.option("--fifo", is_flag=True, help="Keep the order within each message group.")
@click.option(
    "--dlq",
    "dead_letter",
    metavar="QUEUE",
    help="Where messages go that failed too often.",
    shell_complete=complete_queues,
)
@click.option("--max-receives", type=Number(1), help="So many deliveries, then to the dead letters.")
@click.option("--delay", "delay_ms", type=Duration(), help="Every message rests this long first, as in 5s.")
@click.option(
    "--visibility", "visibility_ms", type=Duration(), help="How long a receiver may keep a message."
)
@click.option("-p", "--partitions", type=Number(1, 10_000), default=1, show_default=True)
@click.option("--max-partitions", type=Number(1), help="Follow the load with up to so many partitions.")
@click.option("--priorities", is_flag=True, help="Messages may have a priority from 0 to 9.")
@click.option("--ttl", is_flag=True, help="Messages may expire.")
def command(
    run: Invocation,
    name: str,
    fifo: bool,
    dead_letter: str | None,
    max_receives: int | None,
    delay_ms: int | None,
    visibility_ms: int | None,
    partitions: int,
    max_partitions: int | None,
    priorities: bool,
    ttl: bool,
) -> None:
    """Create a queue.

    \b
    headrace queue create jobs --dlq jobs-dead --max-receives 5
    """
    body: dict[str, Any] = {"name": name, "partitions": partitions, "priorities": priorities, "ttl": ttl}
    if max_partitions is not None:
        body["elastic"] = {"max_partitions": max(partitions, max_partitions), "min_partitions": partitions}
    if fifo:
        body["fifo"] = True
    if dead_letter is not None:
        body["dead_letter"] = dead_letter
        body["max_deliveries"] = max_receives or 5
    if delay_ms is not None:
        body["default_delay_ms"] = delay_ms
    if visibility_ms is not None:
        body["visibility_ms"] = visibility_ms
    row = queue_row(run.http.ask("POST", "/api/v1/queues", body))
    run.output.one(row, lambda: "")
    run.done(f"Created the queue {name}. Try:  headrace queue send {name} hello")
