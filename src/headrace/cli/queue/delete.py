"""Command: `headrace queue delete`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_queues
from headrace.cli.failure import Exit, Failure, exit_of_many
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column


class DeletedQueueRow(Row):
    SCHEMA: ClassVar[str] = "headrace.queue.delete/v1"
    name: str
    status: str
    """deleted, would delete (with --dry-run) or failed."""
    error: str | None = None


@leaf(DeletedQueueRow, Shape.ITEMS, http=True, confirms=True, dry_run=True)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_queues)
@click.option("--keep-topic", is_flag=True, help="Leave the topic and its records alone.")
def command(run: Invocation, names: tuple[str, ...], keep_topic: bool, dry_run: bool) -> Exit:
    """Delete queues and what is in them."""
    return delete_queues(run, names, keep_topic=keep_topic, dry_run=dry_run)


def delete_queues(run: Invocation, names: tuple[str, ...], *, keep_topic: bool, dry_run: bool) -> Exit:
    rows: list[DeletedQueueRow] = []
    failures: list[Failure] = []
    if not dry_run:
        run.confirm(f"delete {', '.join(names)}")
    for name in dict.fromkeys(names):
        path = f"/api/v1/queues/{part(name)}"
        try:
            if dry_run:
                run.http.ask("GET", path)
            else:
                run.http.ask("DELETE", path, query={"keep_topic": "1"} if keep_topic else None)
            rows.append(DeletedQueueRow(name=name, status="would delete" if dry_run else "deleted"))
        except Failure as refused:
            failures.append(refused)
            rows.append(DeletedQueueRow(name=name, status="failed", error=refused.what))
    run.output.items(DeletedQueueRow, rows, [column("NAME", "name"), column("STATUS", "status")])
    for failure in failures:
        run.explain(failure)
    return exit_of_many(failures, len(rows) - len(failures))
