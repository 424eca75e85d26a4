"""Command: `headrace view delete`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_views
from headrace.cli.failure import Exit, exit_of_many
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column
from headrace.cli.views import need_views


class DeletedViewRow(Row):
    SCHEMA: ClassVar[str] = "headrace.view.delete/v1"
    name: str
    source: str
    status: str
    """deleted, would delete (with --dry-run) or failed."""
    error: str | None = None


@leaf(DeletedViewRow, Shape.ITEMS, broker=True, confirms=True, dry_run=True)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_views)
def command(run: Invocation, names: tuple[str, ...], dry_run: bool) -> Exit:
    """Delete views; their source stays. Offsets that groups have committed for them go too."""
    link = run.link
    views = need_views(link, dict.fromkeys(names))
    rows, failures = [], []
    futures = {}
    if not dry_run:
        run.confirm(f"delete the views {', '.join(views)}")
        futures = link.admin.delete_topics(list(views), request_timeout=link.timeout_s)
    for name, view in views.items():
        row = DeletedViewRow(name=name, source=view.source, status="would delete" if dry_run else "deleted")
        failure = link.outcome(futures[name], f'view "{name}"') if name in futures else None
        if failure is not None:
            failures.append(failure)
            row = DeletedViewRow(name=name, source=view.source, status="failed", error=failure.what)
        rows.append(row)
    run.output.items(DeletedViewRow, rows, [column("NAME", "name"), column("STATUS", "status")])
    for failure in failures:
        run.explain(failure)
    return exit_of_many(failures, len(rows) - len(failures))
