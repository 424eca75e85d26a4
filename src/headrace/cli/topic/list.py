"""Command: `headrace topic list`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column
from headrace.core.ids import is_internal


class TopicRow(Row):
    SCHEMA: ClassVar[str] = "headrace.topic.list/v1"
    name: str
    partitions: int
    replicas: int
    messages: int
    """Offsets between the first and the end; compaction and transactions leave some of them empty."""
    internal: bool


@leaf(TopicRow, Shape.ITEMS, broker=True)
@click.option("-a", "--all", "internal", is_flag=True, help="Internal topics too.")
def command(run: Invocation, internal: bool) -> None:
    """List the topics."""
    topics = run.link.topics(internal=internal)
    spans = run.link.spans(topics)
    rows = [
        TopicRow(
            name=name,
            partitions=len(topic.partitions),
            replicas=max((len(partition.replicas) for partition in topic.partitions.values()), default=0),
            messages=sum(spans[name, number].messages for number in topic.partitions),
            internal=is_internal(name),
        )
        for name, topic in topics.items()
    ]
    if not rows:
        run.note("No topics yet. Create one with:  headrace topic create NAME")
    run.output.items(
        TopicRow,
        rows,
        [
            column("NAME", "name"),
            column("PARTITIONS", "partitions", right=True),
            column("REPLICAS", "replicas", right=True),
            column("MESSAGES", "messages", right=True),
            column("INTERNAL", "internal", wide=True),
        ],
    )
