"""Command: `headrace view describe`."""

from __future__ import annotations

from typing import ClassVar

import click
import msgspec

from headrace.cli.completing import complete_views
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column, counted, printable
from headrace.cli.views import need_views


class ViewPartition(msgspec.Struct):
    partition: int
    leader: int
    start_offset: int
    end_offset: int
    """Offsets are those of the source; how many of its records match is known to whoever reads."""


class ViewDetail(Row):
    SCHEMA: ClassVar[str] = "headrace.view.describe/v1"
    name: str
    source: str
    where: str
    partitions: list[ViewPartition]


@leaf(ViewDetail, Shape.ITEMS, broker=True)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_views)
def command(run: Invocation, names: tuple[str, ...]) -> None:
    """Show where views come from, their filters and offsets."""
    link = run.link
    views = need_views(link, names)
    topics = link.need_topics(names)
    spans = link.spans(topics)
    rows = [
        ViewDetail(
            name=name,
            source=view.source,
            where=view.where,
            partitions=[
                ViewPartition(number, partition.leader, spans[name, number].start, spans[name, number].end)
                for number, partition in sorted(topics[name].partitions.items())
            ],
        )
        for name, view in views.items()
    ]
    if not run.output.for_people:
        run.output.items(ViewDetail, rows, [])
        return
    for row in rows:
        title = run.output.styled(row.name, bold=True)
        click.echo(f"{title}: a view of {row.source}, {counted(len(row.partitions), 'partition')}")
        click.echo(f"  where {printable(row.where)}")
        columns = [
            column("PARTITION", "partition", right=True),
            column("LEADER", "leader", right=True),
            column("START", "start_offset", right=True),
            column("END", "end_offset", right=True),
        ]
        run.output.table(row.partitions, columns, indent="  ")
