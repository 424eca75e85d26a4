"""Command: `headrace cluster elect`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.cluster_view import ClusterLink
from headrace.cli.completing import complete_topics
from headrace.cli.failure import Exit
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column, counted


class ElectedRow(Row):
    SCHEMA: ClassVar[str] = "headrace.cluster.elect/v1"
    NAME: ClassVar[str] = "topic"
    topic: str
    partition: int
    status: str
    """elected, not needed, or why not."""


@leaf(ElectedRow, Shape.ITEMS, broker=True, confirms=True)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete_topics,
    help="Only this topic's partitions.",
)
@click.option(
    "--unclean", is_flag=True,
    help="Let a replica lead that is behind, where no complete one is left: acknowledged messages are lost.",
)  # fmt: skip
def command(run: Invocation, topics: tuple[str, ...], unclean: bool) -> Exit:
    """Let the preferred replicas lead again: of all partitions, or of some topics."""
    named = run.link.need_topics(topics) if topics else {}
    if unclean:
        run.confirm("elect leaders that may lack acknowledged messages")
    places = {name: sorted(topic.partitions) for name, topic in named.items()} or None
    results = ClusterLink(run.link).elect(places, unclean=unclean)
    rows = [ElectedRow(topic=topic, partition=number, status=status) for topic, number, status in results]
    shown = [row for row in rows if row.status != "not needed"]
    run.output.items(
        ElectedRow,
        rows if not run.output.for_people else shown,
        [column("TOPIC", "topic"), column("PARTITION", "partition", right=True), column("STATUS", "status")],
    )
    elected = sum(row.status == "elected" for row in rows)
    run.done(f"Elected {counted(elected, 'leader')}")
    return Exit.OK if all(row.status in ("elected", "not needed") for row in rows) else Exit.PARTIAL
