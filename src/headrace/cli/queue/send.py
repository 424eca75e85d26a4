"""Command: `headrace queue send`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import click

from headrace.cli.completing import complete_queues_and_subscriptions
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column, counted
from headrace.cli.parameters import Header, Number

MOST_MESSAGES = 500
MOST_CHARACTERS = 256 * 1024
"""In one request. Its body may have 2 MiB, and a character in JSON up to six bytes."""


class SentRow(Row):
    SCHEMA: ClassVar[str] = "headrace.queue.send/v1"
    NAME: ClassVar[str] = "message_id"
    message_id: str
    partition: int
    offset: int


COLUMNS = [
    column("ID", "message_id", whole=True),
    column("PARTITION", "partition", right=True),
    column("OFFSET", "offset", right=True),
]


@leaf(SentRow, Shape.ITEMS, http=True)
@click.argument("name", shell_complete=complete_queues_and_subscriptions)
@click.argument("values", nargs=-1)
@click.option("-k", "--key", help="The key of every message.")
@click.option("-H", "--header", "headers", type=Header(), multiple=True, help="A header of every message.")
@click.option("--delay", help="Not before this long from now, as in 90s or 3d.")
@click.option("--at", "deliver_at", help="Not before this time, as in 2026-12-24T18:00:00Z.")
@click.option("--group", help="The message group of a FIFO queue.")
@click.option("--priority", type=Number(0, 9), help="0 to 9; the default is 4.")
@click.option("--ttl", help="Forget it when nobody took it for this long.")
def command(
    run: Invocation,
    name: str,
    values: tuple[str, ...],
    key: str | None,
    headers: tuple[tuple[str, bytes], ...],
    delay: str | None,
    deliver_at: str | None,
    group: str | None,
    priority: int | None,
    ttl: str | None,
) -> None:
    """Send messages to a queue: the VALUES given, or one per line of stdin."""
    fixed: dict[str, Any] = {
        "key": key,
        "delay": delay,
        "deliver_at": deliver_at,
        "group": group,
        "priority": priority,
        "ttl": ttl,
        "headers": {header: value.decode(errors="replace") for header, value in headers} or None,
    }
    fixed = {field: value for field, value in fixed.items() if value is not None}
    typed = not values and sys.stdin.isatty()
    if typed:
        run.note("One message per line; Ctrl+D ends.")
    bodies = values or (line.rstrip("\n") for line in sys.stdin)
    path = f"/queues/{part(name)}/batch"
    rows: list[SentRow] = []
    count = 0
    began = time.monotonic()
    for chunk in chunks(bodies, 1 if typed else MOST_MESSAGES):
        records = [{"value": body, **fixed} for body in chunk]
        for one in run.http.ask("POST", path, {"records": records})["items"]:
            count += 1
            if values or not run.output.for_people:
                rows.append(
                    SentRow(message_id=one["message_id"], partition=one["partition"], offset=one["offset"])
                )
    run.output.items(SentRow, rows, COLUMNS)
    run.done(f"Sent {counted(count, 'message')} to {name} in {time.monotonic() - began:.1f}s")


def chunks(bodies: Iterable[str], most: int) -> Iterator[list[str]]:
    """As many as one request may have (F79)."""
    chunk: list[str] = []
    size = 0
    for body in bodies:
        if chunk and (len(chunk) >= most or size + len(body) > MOST_CHARACTERS):
            yield chunk
            chunk, size = [], 0
        chunk.append(body)
        size += len(body)
        if len(chunk) >= most:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
