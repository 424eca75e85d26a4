"""Command: `headrace queue receive`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_queues_and_subscriptions
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape, counted
from headrace.cli.parameters import Duration, Number
from headrace.cli.queue_view import MESSAGE_COLUMNS, RECEIVED_COLUMNS, QueueMessageRow, message_row


@leaf(QueueMessageRow, Shape.ITEMS, http=True)
@click.argument("name", shell_complete=complete_queues_and_subscriptions)
@click.option("-n", "--max", "count", type=Number(1, 1000), default=1, show_default=True)
@click.option("--wait", "wait_ms", type=Duration(), default=0, help="How long to wait for the first one.")
@click.option("--visibility", "visibility_ms", type=Duration(), help="How long they are ours.")
@click.option("--ack", is_flag=True, help="Acknowledge them at once, after they are printed.")
def command(
    run: Invocation, name: str, count: int, wait_ms: int, visibility_ms: int | None, ack: bool
) -> None:
    """Take messages out of a queue. Without --ack they come back unless `queue ack` is said in time."""
    query = {"max": str(count), "wait": f"{wait_ms}ms"}
    if visibility_ms is not None:
        query["visibility"] = f"{visibility_ms}ms"
    path = f"/queues/{part(name)}"
    found = run.http.ask("POST", f"{path}/receive", query=query, wait_ms=wait_ms)["items"]
    rows = [message_row(item) for item in found]
    run.output.items(QueueMessageRow, rows, MESSAGE_COLUMNS if ack else RECEIVED_COLUMNS)
    if ack:
        for row in rows:
            run.http.ask("DELETE", f"{path}/messages/{part(row.receipt or '')}")
        run.done(f"Received and acknowledged {counted(len(rows), 'message')}")
    elif rows:
        run.note(f"Acknowledge with:  headrace queue ack {name} RECEIPT")
    else:
        run.note("Nothing to receive.")
