"""Command: `headrace schedule move`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_queues, complete_waiting
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.core.moments import rfc3339


class MovedRow(Row):
    SCHEMA: ClassVar[str] = "headrace.schedule.move/v1"
    name: str
    due_ms: int


@leaf(MovedRow, Shape.ONE, http=True)
@click.argument("queue", shell_complete=complete_queues)
@click.argument("message_id", shell_complete=complete_waiting)
@click.argument("at", metavar="TIME")
def command(run: Invocation, queue: str, message_id: str, at: str) -> None:
    """Give a message that waits another time, as in 2026-12-24T18:00:00Z."""
    path = f"/api/v1/queues/{part(queue)}/scheduled/{part(message_id)}"
    moved = run.http.ask("PATCH", path, {"deliver_at": at})
    row = MovedRow(name=message_id, due_ms=moved["due_ms"])
    run.output.one(row, lambda: "")
    run.done(f"Due at {rfc3339(row.due_ms)}")
