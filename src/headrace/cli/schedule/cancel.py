"""Command: `headrace schedule cancel`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_queues, complete_schedules
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape


class CancelledRow(Row):
    SCHEMA: ClassVar[str] = "headrace.schedule.cancel/v1"
    name: str
    status: str


@leaf(CancelledRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_schedules)
@click.option(
    "--queue",
    help="The queue that the message waits in; without it NAME is a cron schedule.",
    shell_complete=complete_queues,
)
def command(run: Invocation, name: str, queue: str | None) -> None:
    """Cancel a message that waits, or end a cron schedule. With --queue NAME is the message's id."""
    if queue is None:
        run.http.ask("DELETE", f"/api/v1/schedules/{part(name)}")
    else:
        run.http.ask("DELETE", f"/api/v1/queues/{part(queue)}/scheduled/{part(name)}")
    run.output.one(CancelledRow(name=name, status="cancelled"), lambda: "")
    run.done(f"Cancelled {name}")
