"""Command: `headrace queue explain`."""

from __future__ import annotations

from typing import Any, ClassVar

import click
import msgspec

from headrace.cli.completing import complete_queues_and_subscriptions
from headrace.cli.explained import Cause, told
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape


class QueueExplainRow(Row):
    SCHEMA: ClassVar[str] = "headrace.queue.explain/v1"
    NAME: ClassVar[str] = "queue"
    queue: str
    ready: int
    in_flight: int
    delayed: int
    sentence: str
    findings: list[Cause]


@leaf(QueueExplainRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_queues_and_subscriptions)
def command(run: Invocation, name: str) -> None:
    """Say why a queue is behind, or hands out nothing: each cause with its evidence and what to do next."""
    found: dict[str, Any] = run.http.ask("GET", f"/api/v1/queues/{part(name)}/explain")
    row = msgspec.convert(found, QueueExplainRow)
    head = f"{row.queue}: {row.ready} ready, {row.in_flight} in flight, {row.delayed} waiting."
    run.output.one(row, lambda: told(head, row.sentence, row.findings))
