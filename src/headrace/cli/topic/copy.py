"""Command: `headrace topic copy`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from headrace.cli.completing import complete_topics
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Count, Rate, StartPosition, Where
from headrace.cli.progress import progress
from headrace.cli.reading import Reading, TopicConsumer
from headrace.cli.sending import LineSender, OutgoingLine
from headrace.cli.topic.produce import ProducedRow, report_produced
from headrace.records.filters import Filter
from headrace.records.positions import START, Position


@leaf(ProducedRow, Shape.ONE, broker=True, short_output=False)
@click.argument("source", shell_complete=complete_topics)
@click.argument("target", shell_complete=complete_topics)
@click.option(
    "-o", "--offset", "start", type=StartPosition(), help="From start, -10, 42, @15m or @2026-11-01."
)
@click.option("-n", "--max", "limit", type=Count(), help="At most so many.")
@click.option("--where", type=Where(), help="""Only messages that match, as in 'value.amount > 100'.""")
@click.option("--keep-partitions", is_flag=True, help="Each message to the partition of the same number.")
@click.option("--rate", type=Rate(), help="At most so fast, as in 50/s.")
def command(
    run: Invocation,
    source: str,
    target: str,
    start: Position | None,
    limit: int | None,
    where: Filter | None,
    keep_partitions: bool,
    rate: float | None,
) -> Exit:
    """Copy messages from one topic to another.

    Those that are there when it begins, with keys, headers and times. The target must be there already; where a key goes is up to its
    partitions, unless --keep-partitions is given.
    """
    if source == target:
        raise Failure(Exit.USAGE, "a topic is not copied into itself")
    link = run.link
    spans = link.spans(link.need_topics([source, target]))
    total = sum(span.messages for (topic, _), span in spans.items() if topic == source)
    reader = TopicConsumer(
        link, Reading((source,), start or START, limit, where=where), before_waiting=lambda: None
    )
    sender = LineSender(link, target, {"acks": "all", "enable.idempotence": True}, {}, rate)
    try:
        with progress(run, f"Copying {source}", limit or total) as advance:
            sender.send_all(_copied(reader, keep_partitions), advance)
    finally:
        reader.close()
    return report_produced(run, target, sender)


def _copied(reader: TopicConsumer, keep_partitions: bool) -> Iterator[OutgoingLine]:
    for message in reader.messages():
        kind, timestamp_ms = message.timestamp()
        more = {"timestamp": timestamp_ms} if kind else {}
        if headers := message.headers():
            more["headers"] = headers
        if keep_partitions:
            more["partition"] = message.partition()
        yield OutgoingLine(message.key(), message.value(), 1, more)
