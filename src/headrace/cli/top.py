"""Command: `headrace top`."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import click

from headrace.cli.failure import Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column, counted
from headrace.cli.parameters import Number
from headrace.core.units import format_size

AGAIN_S = 2.0
ANOTHER_SCREEN, BACK = "\033[?1049h", "\033[?1049l"
TOP, REST_OF_LINE, REST_OF_SCREEN = "\033[H", "\033[K", "\033[J"


class TopRow(Row):
    SCHEMA: ClassVar[str] = "headrace.top/v1"
    kind: str
    """broker, topic, group, queue, writer or pipeline."""
    name: str
    per_s: float
    """Into a broker or a topic; read by a group or a pipeline; done by a queue; sent by a writer."""
    amount: int
    """Partitions that a broker leads; messages in a topic; behind or waiting otherwise."""
    members: int | None
    paused: bool
    in_bytes_per_s: int | None = None
    """These are of brokers only, and null where one does not answer."""
    out_bytes_per_s: int | None = None
    free_bytes: int | None = None


class Section(NamedTuple):
    kind: str
    columns: Sequence[Column]


def _rate(row: Any) -> str:
    return f"{row.per_s:,.1f}"


def _bytes(field: str) -> Any:
    return lambda row: None if getattr(row, field) is None else format_size(getattr(row, field))


def _section(title: str, kind: str, per_s: str, *more: Column) -> Section:
    named = Column(title, lambda row: f"{row.name} (paused)" if row.paused else row.name)
    return Section(kind, [named, Column(per_s, _rate, True), *more])


def _amount(title: str) -> Column:
    return column(title, "amount", right=True)


SECTIONS = [
    _section(
        "BROKERS", "broker", "IN A SECOND", _amount("LEADS"), Column("IN", _bytes("in_bytes_per_s"), True), Column("OUT", _bytes("out_bytes_per_s"), True),
        Column("FREE", _bytes("free_bytes"), True),
    ),
    _section("TOPICS", "topic", "IN A SECOND", _amount("MESSAGES")),
    _section("GROUPS", "group", "READ A SECOND", _amount("BEHIND"), column("MEMBERS", "members", right=True)),
    _section("QUEUES", "queue", "DONE A SECOND", _amount("WAITING")),
    _section("PIPELINES", "pipeline", "READ A SECOND", _amount("BEHIND")),
    _section("WRITERS", "writer", "SENT A SECOND"),
]  # fmt: skip


class ClusterLook(NamedTuple):
    cluster: dict[str, Any]
    rows: list[TopRow]

    @property
    def headline(self) -> str:
        found = self.cluster
        words = [counted(len(found["brokers"]), "broker"), counted(found["topics"], "topic")]
        troubles = (
            ("under_replicated_partitions", "not fully replicated"),
            ("offline_partitions", "offline"),
        )
        words += [f"{counted(found[name], 'partition')} {what}" for name, what in troubles if found[name]]
        return ", ".join(words)


@leaf(TopRow, Shape.ITEMS, http=True)
@click.option(
    "-n", "--max", "limit", type=Number(1, 200), default=15, show_default=True, help="Of each kind."
)
@click.option("--once", is_flag=True, help="Look once.")
def command(run: Invocation, limit: int, once: bool) -> None:
    """Show what flows now: brokers, topics, groups, queues. Ctrl+C ends it.

    The busiest first, what is behind before what is not. The numbers are those of the whole cluster. Looks once when its output is not a terminal.
    """
    if not run.output.for_people:
        run.output.items(TopRow, _look(run, limit).rows, [])
    elif once or not sys.stdout.isatty():
        look = _look(run, limit)
        click.echo("\n".join([look.headline, *_lines(run, look, limit)]))
    else:
        _live(run, limit)


def _live(run: Invocation, limit: int) -> None:
    """On a screen of its own, as long as somebody looks; what was there before comes back."""
    look = _look(run, limit)
    click.echo(ANOTHER_SCREEN, nl=False)
    try:
        while True:
            size = shutil.get_terminal_size()
            trouble = ""
            try:
                look = _look(run, limit)
            except Failure as failure:  # a broker that is being replaced: the last numbers stay, and say so
                trouble = f"  ({failure.what})"
            lines = [f"{time.strftime('%H:%M:%S')}  {look.headline}{trouble}"[: size.columns]]
            lines += _lines(run, look, limit, size.lines - 2)
            click.echo(TOP + "".join(f"{line}{REST_OF_LINE}\n" for line in lines) + REST_OF_SCREEN, nl=False)
            time.sleep(AGAIN_S)  # noqa: TID251 - a person looks on
    finally:
        click.echo(BACK, nl=False)


def _look(run: Invocation, limit: int) -> ClusterLook:
    cluster = run.http.ask("GET", "/api/v1/cluster")
    nodes = run.http.ask("GET", "/api/v1/flow", query={"limit": str(limit)})["nodes"]
    known = ("kind", "name", "per_s", "amount", "members", "paused")
    rows = [TopRow(**{name: node[name] for name in known}) for node in nodes]
    rows.sort(key=lambda row: (-row.per_s, -row.amount, row.name))
    return ClusterLook(cluster, [*map(_broker, cluster["brokers"]), *rows])


def _broker(found: dict[str, Any]) -> TopRow:
    return TopRow(
        kind="broker", name=f"{found['id']} {found['kafka']}", per_s=found["in_per_s"] or 0.0, amount=found["partitions_led"],
        members=None, paused=False, in_bytes_per_s=found["in_bytes_per_s"], out_bytes_per_s=found["out_bytes_per_s"],
        free_bytes=found["free_bytes"],
    )  # fmt: skip


def _lines(run: Invocation, look: ClusterLook, limit: int, height: int | None = None) -> list[str]:
    """A table for each kind there is; on a screen of so many lines each gets its share, and those with few leave theirs to the others."""
    sections = [
        (section, found)
        for section in SECTIONS
        if (found := [row for row in look.rows if row.kind == section.kind])
    ]
    shares = _shares([_most(section, found, limit) for section, found in sections], height)
    lines: list[str] = []
    for (section, found), share in zip(sections, shares, strict=True):
        if share:
            lines += ["", *run.output.table_text(found[:share], section.columns).split("\n")]
    return lines


def _most(section: Section, found: list[TopRow], limit: int) -> int:
    return len(found) if section.kind == "broker" else min(limit, len(found))


def _shares(wanted: list[int], height: int | None) -> list[int]:
    """How many rows each table gets; its head and the empty line above take two more."""
    if height is None:
        return wanted
    given = [0] * len(wanted)
    left = height
    while left > 0:
        before = left
        for index, most in enumerate(wanted):
            costs = 1 if given[index] else 3
            if given[index] < most and costs <= left:
                given[index] += 1
                left -= costs
        if left == before:
            break
    return given
