"""Command: `headrace group seek`."""

from __future__ import annotations

from typing import ClassVar

import click
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from headrace.cli.broker_link import BrokerLink, Span
from headrace.cli.completing import complete_groups, complete_topics
from headrace.cli.failure import Exit, Failure, failure_of
from headrace.cli.group_offsets import descriptions, positions
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column
from headrace.cli.parameters import GroupTarget
from headrace.client.errors import headrace_error
from headrace.records.positions import Anchor, Position


class SoughtRow(Row):
    SCHEMA: ClassVar[str] = "headrace.group.seek/v1"
    NAME: ClassVar[str] = "topic"
    topic: str
    partition: int
    before: int | None
    after: int
    dry_run: bool


@leaf(SoughtRow, Shape.ITEMS, broker=True, confirms=True, dry_run=True)
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "--to", "target", type=GroupTarget(), required=True, help="start, end, 42, -10, +10, @15m or @2026-11-01."
)
@click.option(
    "-t", "--topic", "topics", multiple=True, shell_complete=complete_topics, help="TOPIC or TOPIC:PARTITION."
)
def command(run: Invocation, group: str, target: Position, topics: tuple[str, ...], dry_run: bool) -> None:
    """Move the committed offsets of a group.

    Without --topic it moves on all partitions of every topic that it has committed for. -10 is ten before the end, as
    everywhere; +10 is ten on from where the group is. Its consumers must be stopped: they would commit their own offsets
    over it.
    """
    link = run.link
    read = {(entry.topic, entry.partition): entry.committed for entry in positions(link, [group])}
    before = {key: offset for key, offset in read.items() if offset is not None}
    partitions = named_partitions(link, topics) if topics else list(read)
    if not partitions:
        raise Failure(
            Exit.NOT_FOUND, f'group "{group}" has committed nothing', "say where it should start with --topic"
        )
    known = link.topics()
    spans = link.spans(
        {topic: known[topic] for topic in {topic for topic, _ in partitions} if topic in known}
    )
    after = target_offsets(link, target, [key for key in partitions if key in spans], before, spans)
    rows = [
        SoughtRow(
            topic=topic, partition=number, before=before.get((topic, number)), after=offset, dry_run=dry_run
        )
        for (topic, number), offset in sorted(after.items())
    ]
    if not dry_run:
        need_empty(link, group)
        run.confirm(f"move group {group} on {len(rows)} partitions")
        commit_offsets(link, group, after)
    columns = [
        column("TOPIC", "topic"),
        column("PARTITION", "partition", right=True),
        column("BEFORE", "before", right=True),
        column("AFTER", "after", right=True),
    ]
    run.output.items(SoughtRow, rows, columns)


def named_partitions(link: BrokerLink, topics: tuple[str, ...]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for text in topics:
        name, colon, number = text.partition(":")
        metadata = link.need_topics([name])[name]
        if not colon:
            found += [(name, entry) for entry in metadata.partitions]
        elif number.isdecimal() and int(number) in metadata.partitions:
            found.append((name, int(number)))
        else:
            raise Failure(Exit.NOT_FOUND, f'topic "{name}" has no partition {number}')
    return found


def target_offsets(
    link: BrokerLink,
    target: Position,
    partitions: list[tuple[str, int]],
    before: dict[tuple[str, int], int],
    spans: dict[tuple[str, int], Span],
) -> dict[tuple[str, int], int]:
    timed: dict[tuple[str, int], int] = {}
    if target.anchor is Anchor.SINCE:
        found = link.offsets(partitions, OffsetSpec.for_timestamp(target.value))
        timed = {key: offset for key, offset in found.items() if offset >= 0}
    return {
        key: target.offset(*spans[key], committed=before.get(key), at_time=timed.get(key))
        for key in partitions
    }


def need_empty(link: BrokerLink, group: str) -> None:
    members = len(descriptions(link, [group])[group].members)
    if members:
        raise Failure(
            Exit.CONFLICT,
            f'group "{group}" has {members} running consumers',
            "stop them first; they would commit their own offsets over it",
            code="NON_EMPTY_GROUP",
        )


def commit_offsets(link: BrokerLink, group: str, after: dict[tuple[str, int], int]) -> None:
    offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in after.items()]
    request = [ConsumerGroupTopicPartitions(group, offsets)]
    futures = link.admin.alter_consumer_group_offsets(request, request_timeout=link.timeout_s)
    for entry in link.answer(futures[group], f'group "{group}"').topic_partitions:
        if entry.error is not None:
            raise failure_of(headrace_error(entry.error), f"{entry.topic}-{entry.partition}")
