"""Command: `headrace schedule list`."""

from __future__ import annotations

from typing import Any, ClassVar

import click

from headrace.cli.completing import complete_queues
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column
from headrace.cli.parameters import Number
from headrace.cli.queue_view import short
from headrace.core.moments import rfc3339


class ScheduleRow(Row):
    SCHEMA: ClassVar[str] = "headrace.schedule.list/v1"
    name: str
    """The message's id, or the name of the cron schedule."""
    topic: str
    due_ms: int
    """Wall clock."""
    value: Any
    cron: str | None = None


@leaf(ScheduleRow, Shape.ITEMS, http=True)
@click.argument("queue", required=False, shell_complete=complete_queues)
@click.option("-n", "--max", "count", type=Number(1), default=100, show_default=True)
def command(run: Invocation, queue: str | None, count: int) -> None:
    """List the messages of a queue that wait, or the cron schedules when no QUEUE is given."""
    if queue is None:
        rows = [
            ScheduleRow(name=item["name"], topic=item["topic"], due_ms=item["next_ms"], value=item["value"], cron=item["cron"])
            for item in run.http.all_items("/api/v1/schedules")
        ]  # fmt: skip
    else:
        waiting = run.http.all_items(
            f"/api/v1/queues/{part(queue)}/scheduled", {"limit": str(min(count, 1000))}, count
        )
        rows = [
            ScheduleRow(name=item["message_id"], topic=item["topic"], due_ms=item["due_ms"], value=item["value"])
            for item in waiting
        ]  # fmt: skip
    if not rows:
        run.note("Nothing waits for its time.")
    columns = [
        column("NAME", "name"),
        Column("DUE", lambda row: rfc3339(row.due_ms), whole=True),
        column("CRON", "cron"),
        Column("VALUE", lambda row: short(row.value)),
    ]
    run.output.items(ScheduleRow, rows, columns)
