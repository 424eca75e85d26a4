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
from headrace.core.moments import rfc3339
from headrace.core.units import format_age_ms, format_duration_ms


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
    describe_queue(run, name)


def describe_queue(run: Invocation, name: str) -> None:
    row = msgspec.convert(run.http.ask("GET", f"/api/v1/queues/{part(name)}"), DescribedQueue)
    run.output.one(row, lambda: _text(row))


def _text(row: DescribedQueue) -> str:
    """What is set, in the units that people think in; `--json` has all of it, in milliseconds."""
    top = msgspec.to_builtins(row)
    settings = top.pop("config")
    fields = top | {name: value for name, value in settings.items() if name not in top}
    shown = {
        name.removesuffix("_ms").replace("_", " "): _value(name, value)
        for name, value in fields.items()
        if value not in ("", [], {}, None) and not (name in settings and not value)
    }
    width = max(len(name) for name in shown)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in shown.items())


def _value(name: str, value: Any) -> str:
    if name == "created_ms":
        return rfc3339(value) or str(value)
    if name == "oldest_age_ms":
        return format_age_ms(value)
    return format_duration_ms(value) if name.endswith("_ms") else words(value)
