"""Command: `headrace queue stats`."""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

import click

from headrace.cli.completing import complete_queues_and_subscriptions
from headrace.cli.failure import Exit, Failure, did_you_mean
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column
from headrace.cli.parameters import Duration, Number
from headrace.core.units import format_age_ms


class StatsRow(Row):
    SCHEMA: ClassVar[str] = "headrace.queue.stats/v1"
    name: str
    ready: int
    in_flight: int
    delayed: int
    oldest_age_ms: int
    change_per_second: float | None
    """By how much ready grows, or falls; known from the second look on."""


COLUMNS = [
    column("NAME", "name"),
    column("READY", "ready", right=True),
    Column(
        "CHANGE/S",
        lambda row: None if row.change_per_second is None else f"{row.change_per_second:+.1f}",
        True,
    ),
    column("IN FLIGHT", "in_flight", right=True),
    column("DELAYED", "delayed", right=True),
    Column("OLDEST", lambda row: format_age_ms(row.oldest_age_ms), True),
]


@leaf(StatsRow, Shape.ITEMS, http=True)
@click.argument("names", nargs=-1, shell_complete=complete_queues_and_subscriptions)
@click.option(
    "--watch", "every_ms", type=Duration(), is_flag=False, flag_value="1s", help="Again and again, as in 2s."
)
@click.option("-n", "--times", type=Number(1), help="With --watch: so many times.")
def command(run: Invocation, names: tuple[str, ...], every_ms: int | None, times: int | None) -> None:
    """Show how many messages queues have, and how fast that changes: all of them, or those named."""
    before: dict[str, int] = {}
    moment = 0.0
    pause = threading.Event()
    while True:
        items = _items(run, names)
        now = time.monotonic()
        rows = [_row(item, before.get(item["name"]), now - moment) for item in items]
        before, moment = {row.name: row.ready for row in rows}, now
        if every_ms is not None and run.output.colour:
            click.clear()
        run.output.items(StatsRow, rows, COLUMNS)
        times = None if times is None else times - 1
        if every_ms is None or times == 0:
            return
        pause.wait(every_ms / 1000)


def _items(run: Invocation, names: tuple[str, ...]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = run.http.all_items("/api/v1/queues")
    known = [item["name"] for item in items]
    for name in names:
        if name not in known:
            raise Failure(
                Exit.NOT_FOUND,
                f'there is no queue called "{name}"',
                did_you_mean(name, known) or "headrace queue list",
            )
    return [item for item in items if not names or item["name"] in names]


def _row(item: dict[str, Any], before: int | None, seconds: float) -> StatsRow:
    change = None if before is None or seconds <= 0 else round((item["ready"] - before) / seconds, 1)
    return StatsRow(
        name=item["name"],
        ready=item["ready"],
        in_flight=item["in_flight"],
        delayed=item["delayed"],
        oldest_age_ms=item["oldest_age_ms"],
        change_per_second=change,
    )
