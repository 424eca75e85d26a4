"""Command: `headrace group delete`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_groups
from headrace.cli.failure import Exit, exit_of_many
from headrace.cli.group_offsets import need_groups
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column


class DeletedGroupRow(Row):
    SCHEMA: ClassVar[str] = "headrace.group.delete/v1"
    name: str
    status: str
    """deleted, would delete (with --dry-run) or failed."""
    error: str | None = None


@leaf(DeletedGroupRow, Shape.ITEMS, broker=True, confirms=True, dry_run=True)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_groups)
def command(run: Invocation, names: tuple[str, ...], dry_run: bool) -> Exit:
    """Delete groups and their committed offsets."""
    link = run.link
    doomed = need_groups(link, names)
    rows, failures = [], []
    if dry_run:
        rows = [DeletedGroupRow(name=name, status="would delete") for name in doomed]
    else:
        run.confirm(f"delete {', '.join(doomed)} with all committed offsets")
        futures = link.admin.delete_consumer_groups(doomed, request_timeout=link.timeout_s)
        for name, future in futures.items():
            row = DeletedGroupRow(name=name, status="deleted")
            failure = link.outcome(future, f'group "{name}"')
            if failure is not None:
                failures.append(failure)
                row.status, row.error = "failed", failure.what
            rows.append(row)
    run.output.items(DeletedGroupRow, rows, [column("NAME", "name"), column("STATUS", "status")])
    for failure in failures:
        run.explain(failure)
    return exit_of_many(failures, len(rows) - len(failures))
