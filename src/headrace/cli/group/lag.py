"""Command: `headrace group lag`."""

from __future__ import annotations

import threading
from itertools import groupby
from typing import ClassVar

import click

from headrace.cli.broker_link import BrokerLink
from headrace.cli.completing import complete_groups
from headrace.cli.group_offsets import group_names, need_groups, positions
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column
from headrace.cli.parameters import Duration


class LagRow(Row):
    SCHEMA: ClassVar[str] = "headrace.group.lag/v1"
    NAME: ClassVar[str] = "group"
    group: str
    topic: str
    partitions: int
    """Of the topic."""
    committed_partitions: int
    """With a committed offset; the other numbers are about these."""
    committed: int
    """Sum over the partitions, as `end_offset` is."""
    end_offset: int
    lag: int


COLUMNS = [
    column("GROUP", "group"),
    column("TOPIC", "topic"),
    Column("PARTITIONS", lambda row: f"{row.committed_partitions}/{row.partitions}", right=True),
    column("COMMITTED", "committed", right=True),
    column("END", "end_offset", right=True),
    column("LAG", "lag", right=True),
]


@leaf(LagRow, Shape.ITEMS, broker=True)
@click.argument("names", nargs=-1, shell_complete=complete_groups)
@click.option(
    "--watch", "every_ms", type=Duration(), is_flag=False, flag_value="1s", help="Again and again, as in 2s."
)
def command(run: Invocation, names: tuple[str, ...], every_ms: int | None) -> None:
    """Show how far groups are behind: all of them, or those named."""
    wanted = need_groups(run.link, names) if names else None
    while True:
        rows = _rows(run.link, wanted if wanted is not None else group_names(run.link))
        if every_ms is not None and run.output.colour:
            click.clear()
        run.output.items(LagRow, rows, COLUMNS)
        if not rows:
            run.note("No group has committed anything yet.")
        if every_ms is None:
            return
        threading.Event().wait(every_ms / 1000)


def _rows(link: BrokerLink, names: list[str]) -> list[LagRow]:
    rows = []
    for (group, topic), entries in groupby(positions(link, names), key=lambda entry: entry[:2]):
        every = list(entries)
        known = [entry for entry in every if entry.committed is not None]
        rows.append(
            LagRow(
                group=group,
                topic=topic,
                partitions=len(every),
                committed_partitions=len(known),
                committed=sum(entry.committed or 0 for entry in known),
                end_offset=sum(entry.end for entry in known),
                lag=sum(entry.lag or 0 for entry in known),
            )
        )
    return rows
