"""Command: `headrace queue purge`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_queues_and_subscriptions
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, counted
from headrace.cli.queue_view import queue_row


class PurgedRow(Row):
    SCHEMA: ClassVar[str] = "headrace.queue.purge/v1"
    name: str
    purged: int


@leaf(PurgedRow, Shape.ONE, http=True, confirms=True, dry_run=True)
@click.argument("name", shell_complete=complete_queues_and_subscriptions)
def command(run: Invocation, name: str, dry_run: bool) -> None:
    """Throw away every message of a queue, also those in flight and those that wait for their time."""
    path = f"/api/v1/queues/{part(name)}"
    held = queue_row(run.http.ask("GET", path))
    count = held.ready + held.in_flight + held.delayed
    if not dry_run:
        run.confirm(f"throw away {counted(count, 'message')} of {name}")
        count = run.http.ask("POST", f"{path}/purge")["purged"]
    run.output.one(PurgedRow(name=name, purged=count), lambda: "")
    run.done(f"{'Would throw' if dry_run else 'Threw'} away {counted(count, 'message')} of {name}")
