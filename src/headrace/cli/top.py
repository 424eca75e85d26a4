"""Command: `headrace top`."""

from __future__ import annotations

import sys
import time
from typing import Any, ClassVar

import click

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column
from headrace.cli.parameters import Number

AGAIN_S = 2.0
CLEAR = "\033[H\033[2J"


class TopRow(Row):
    SCHEMA: ClassVar[str] = "headrace.top/v1"
    kind: str
    """topic, group or queue."""
    name: str
    per_s: float
    """Into a topic; read by a group; done by a queue."""
    amount: int
    """Messages in a topic; behind or waiting otherwise."""
    members: int | None
    paused: bool


COLUMNS = [
    column("KIND", "kind"),
    column("NAME", "name"),
    Column("A SECOND", lambda row: f"{row.per_s:.1f}", True),
    Column("BEHIND", lambda row: None if row.kind == "topic" else row.amount, True),
    Column("MESSAGES", lambda row: row.amount if row.kind == "topic" else None, True),
    Column("MEMBERS", lambda row: row.members, True),
]


@leaf(TopRow, Shape.ITEMS, http=True)
@click.option(
    "-n", "--max", "limit", type=Number(1, 200), default=15, show_default=True, help="Of each kind."
)
@click.option("--once", is_flag=True, help="Look once.")
def command(run: Invocation, limit: int, once: bool) -> None:
    """Show what flows now, the busiest first. Ctrl+C ends it.

    The numbers are those of the broker that answers. Looks once when its output is not a terminal.
    """
    live = not once and run.output.for_people and sys.stdout.isatty()
    while True:
        rows = [
            _row(node) for node in run.http.ask("GET", "/api/v1/flow", query={"limit": str(limit)})["nodes"]
        ]
        rows.sort(key=lambda row: (-row.per_s, -row.amount, row.name))
        if live:
            click.echo(CLEAR, nl=False)
        run.output.items(TopRow, rows, COLUMNS)
        if not live:
            return
        time.sleep(AGAIN_S)  # noqa: TID251 - a person looks on


def _row(node: dict[str, Any]) -> TopRow:
    return TopRow(**{name: node[name] for name in TopRow.__struct_fields__})
