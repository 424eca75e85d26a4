"""Command: `headrace group delete-offsets`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.cluster_view import ClusterLink
from headrace.cli.completing import complete_groups, complete_topics
from headrace.cli.failure import Exit, Failure, exit_of_many, failure_of
from headrace.cli.group_offsets import need_groups, positions
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.wire.api import ApiKey
from headrace.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)


class ForgottenRow(Row):
    SCHEMA: ClassVar[str] = "headrace.group.delete-offsets/v1"
    NAME: ClassVar[str] = "topic"
    topic: str
    partition: int
    offset: int
    """That was committed."""
    status: str
    """deleted, would delete (with --dry-run) or failed."""


@leaf(ForgottenRow, Shape.ITEMS, broker=True, confirms=True, dry_run=True)
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "-t", "--topic", "topics", multiple=True, required=True, shell_complete=complete_topics,
    help="TOPIC or TOPIC:PARTITION.",
)  # fmt: skip
def command(run: Invocation, group: str, topics: tuple[str, ...], dry_run: bool) -> Exit:
    """Forget what a group has committed for topics that it does not read any more."""
    link = run.link
    need_groups(link, [group])
    wanted = [
        entry
        for entry in positions(link, [group])
        if entry.committed is not None and {entry.topic, f"{entry.topic}:{entry.partition}"} & set(topics)
    ]
    if not wanted:
        raise Failure(
            Exit.NOT_FOUND, f'group "{group}" has committed nothing there', f"headrace group describe {group}"
        )
    rows = [
        ForgottenRow(
            topic=entry.topic, partition=entry.partition, offset=entry.committed or 0, status="would delete"
        )
        for entry in wanted
    ]
    failures = []
    if not dry_run:
        run.confirm(f"forget {len(rows)} committed offsets of {group}")
        by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for row in rows:
            by_topic.setdefault(row.topic, []).append(OffsetDeleteRequestPartition(row.partition))
        request = OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(*entry) for entry in by_topic.items()])
        answer = ClusterLink(link).ask_coordinator(group, ApiKey.OFFSET_DELETE, 0, request)
        if answer.error_code:
            raise failure_of(HeadraceError(ErrorKind(answer.error_code)), f'group "{group}"')
        codes = {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
        for row in rows:
            code = codes.get((row.topic, row.partition), 0)
            row.status = "failed" if code else "deleted"
            if code:
                failures.append(failure_of(HeadraceError(ErrorKind(code)), f"{row.topic}-{row.partition}"))
    columns = [
        column("TOPIC", "topic"),
        column("PARTITION", "partition", right=True),
        column("OFFSET", "offset", right=True),
        column("STATUS", "status"),
    ]
    run.output.items(ForgottenRow, rows, columns)
    for failure in failures:
        run.explain(failure)
    return exit_of_many(failures, len(rows) - len(failures))
