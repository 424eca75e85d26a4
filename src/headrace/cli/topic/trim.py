"""Command: `headrace topic trim`."""

from __future__ import annotations

from typing import ClassVar

import click
from confluent_kafka import TopicPartition

from headrace.cli.completing import complete_topics
from headrace.cli.failure import Exit, exit_of_many
from headrace.cli.group.seek import named_partitions, target_offsets
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column, counted
from headrace.cli.parameters import StartPosition
from headrace.records.positions import Position


class TrimmedRow(Row):
    SCHEMA: ClassVar[str] = "headrace.topic.trim/v1"
    NAME: ClassVar[str] = "topic"
    topic: str
    partition: int
    before: int
    """Where it began."""
    after: int
    """Where it begins from now on."""
    dry_run: bool
    error: str | None = None

    @property
    def messages(self) -> int:
        return self.after - self.before


COLUMNS = [
    column("TOPIC", "topic"),
    column("PARTITION", "partition", right=True),
    column("BEGAN AT", "before", right=True),
    column("BEGINS AT", "after", right=True),
    column("MESSAGES", "messages", right=True),
]


@leaf(TrimmedRow, Shape.ITEMS, broker=True, confirms=True, dry_run=True)
@click.argument(
    "topics", metavar="TOPIC[:PARTITION]…", nargs=-1, required=True, shell_complete=complete_topics
)
@click.option(
    "--before", "target", type=StartPosition(), required=True,
    help="What lies before it goes: end, 42, -10 (all but ten), @15m (what is older) or @2026-11-01.",
)  # fmt: skip
def command(run: Invocation, topics: tuple[str, ...], target: Position, dry_run: bool) -> Exit:
    """Delete the oldest messages of topics, up to an offset or a time.

    \b
    headrace topic trim orders --before @7d --dry-run
    headrace topic trim orders:3 --before 1200
    """
    link = run.link
    partitions = named_partitions(link, topics)
    spans = link.spans(link.need_topics(list(dict.fromkeys(topic for topic, _ in partitions))))
    after = target_offsets(link, target, partitions, {}, spans)
    rows = [
        TrimmedRow(topic=key[0], partition=key[1], before=spans[key].start, after=offset, dry_run=dry_run)
        for key, offset in sorted(after.items())
        if offset > spans[key].start
    ]
    total = sum(row.messages for row in rows)
    failures = []
    if rows and not dry_run:
        run.confirm(f"delete {counted(total, 'message')} of {', '.join(topics)}")
        wanted = [TopicPartition(row.topic, row.partition, row.after) for row in rows]
        futures = link.admin.delete_records(wanted, request_timeout=link.timeout_s)
        by_place = {(place.topic, place.partition): future for place, future in futures.items()}
        for row in rows:
            failure = link.outcome(by_place[row.topic, row.partition], f"{row.topic}-{row.partition}")
            if failure is not None:
                row.error = failure.what
                failures.append(failure)
    run.output.items(TrimmedRow, rows, COLUMNS)
    if not rows:
        run.note("Nothing lies before that.")
    elif not dry_run:
        run.done(f"Deleted {counted(sum(row.messages for row in rows if row.error is None), 'message')}")
    for failure in failures:
        run.explain(failure)
    return exit_of_many(failures, len(rows) - len(failures)) if rows else Exit.OK
