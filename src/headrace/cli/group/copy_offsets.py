"""Command: `headrace group copy-offsets`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_groups, complete_topics
from headrace.cli.failure import Exit, Failure
from headrace.cli.group.seek import SoughtRow, commit_offsets, need_empty
from headrace.cli.group_offsets import group_names, need_groups, positions
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape, column

COLUMNS = [
    column("TOPIC", "topic"),
    column("PARTITION", "partition", right=True),
    column("BEFORE", "before", right=True),
    column("AFTER", "after", right=True),
]


@leaf(SoughtRow, Shape.ITEMS, broker=True, confirms=True, dry_run=True)
@click.argument("source", shell_complete=complete_groups)
@click.argument("target", shell_complete=complete_groups)
@click.option(
    "-t", "--topic", "topics", multiple=True, shell_complete=complete_topics, help="Only this topic."
)
def command(run: Invocation, source: str, target: str, topics: tuple[str, ...], dry_run: bool) -> None:
    """Let a group go on where another one is: a new one, or one whose consumers are stopped."""
    link = run.link
    if source == target:
        raise Failure(Exit.USAGE, "these are one and the same group")
    need_groups(link, [source])
    found = {
        (entry.topic, entry.partition): entry.committed
        for entry in positions(link, [source])
        if entry.committed is not None and (not topics or entry.topic in topics)
    }
    if not found:
        raise Failure(
            Exit.NOT_FOUND,
            f'group "{source}" has committed nothing there',
            f"headrace group describe {source}",
        )
    exists = target in group_names(link)
    before = (
        {(entry.topic, entry.partition): entry.committed for entry in positions(link, [target])}
        if exists
        else {}
    )
    rows = [
        SoughtRow(topic=key[0], partition=key[1], before=before.get(key), after=offset, dry_run=dry_run)
        for key, offset in sorted(found.items())
    ]
    if not dry_run:
        if exists:
            need_empty(link, target)
            run.confirm(f"move group {target} on {len(rows)} partitions")
        commit_offsets(link, target, found)
    run.output.items(SoughtRow, rows, COLUMNS)
