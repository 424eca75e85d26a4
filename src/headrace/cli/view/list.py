"""Command: `headrace view list`."""

from __future__ import annotations

from typing import ClassVar

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column
from headrace.cli.views import views_among


class ViewRow(Row):
    SCHEMA: ClassVar[str] = "headrace.view.list/v1"
    name: str
    source: str
    where: str
    partitions: int


@leaf(ViewRow, Shape.ITEMS, broker=True)
def command(run: Invocation) -> None:
    """List the views."""
    topics = run.link.topics(internal=False)
    rows = [
        ViewRow(
            name=view.name, source=view.source, where=view.where, partitions=len(topics[view.name].partitions)
        )
        for view in views_among(run.link, topics).values()
    ]
    if not rows:
        run.note("No views yet. Create one with:  headrace view create NAME --of TOPIC --where '…'")
    run.output.items(
        ViewRow,
        rows,
        [
            column("NAME", "name"),
            column("SOURCE", "source"),
            column("PARTITIONS", "partitions", right=True),
            column("WHERE", "where"),
        ],
    )
