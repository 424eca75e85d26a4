"""Command: `headrace queue describe`."""

from __future__ import annotations

from typing import Any, ClassVar

import click
import msgspec

from headrace.cli.completing import complete_queues_and_subscriptions
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape, words
from headrace.cli.queue_view import QueueRow


class DescribedQueue(QueueRow):
    SCHEMA: ClassVar[str] = "headrace.queue.describe/v1"
    start: str
    config: dict[str, Any]
    tags: dict[str, str]
    dead_letter_of: list[str]
    created_ms: int
    partitions: int
    active_partitions: int
    moving: bool
    elastic: dict[str, Any] | None


@leaf(DescribedQueue, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_queues_and_subscriptions)
def command(run: Invocation, name: str) -> None:
    """Show a queue with its settings."""
    row = msgspec.convert(run.http.ask("GET", f"/api/v1/queues/{part(name)}"), DescribedQueue)
    run.output.one(row, lambda: _text(row))


def _text(row: DescribedQueue) -> str:
    shown = {
        name: value
        for name, value in msgspec.to_builtins(row).items()
        if name != "config" and value not in ("", [], {}, None)
    }
    shown |= {f"config.{name}": value for name, value in row.config.items()}
    width = max(len(name) for name in shown)
    return "\n".join(f"{name.ljust(width)}  {words(value)}" for name, value in shown.items())
