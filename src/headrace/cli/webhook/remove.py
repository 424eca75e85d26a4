"""Command: `headrace webhook remove`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_webhooks
from headrace.cli.failure import Exit, Failure, exit_of_many
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column
from headrace.cli.webhook_view import path_of


class RemovedWebhookRow(Row):
    SCHEMA: ClassVar[str] = "headrace.webhook.remove/v1"
    name: str
    status: str
    """removed, would remove (with --dry-run) or failed."""
    error: str | None = None


@leaf(RemovedWebhookRow, Shape.ITEMS, http=True, confirms=True, dry_run=True)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_webhooks)
@click.option("--keep-queue", is_flag=True, help="Leave the subscription that was made for the webhook.")
def command(run: Invocation, names: tuple[str, ...], keep_queue: bool, dry_run: bool) -> Exit:
    """Remove webhooks. A queue that was there before stays, with everything in it."""
    rows: list[RemovedWebhookRow] = []
    failures: list[Failure] = []
    if not dry_run:
        run.confirm(f"remove {', '.join(names)}")
    for name in dict.fromkeys(names):
        try:
            if dry_run:
                run.http.ask("GET", path_of(name))
            else:
                run.http.ask("DELETE", path_of(name), query={"keep_queue": "1"} if keep_queue else None)
            rows.append(RemovedWebhookRow(name=name, status="would remove" if dry_run else "removed"))
        except Failure as refused:
            failures.append(refused)
            rows.append(RemovedWebhookRow(name=name, status="failed", error=refused.what))
    run.output.items(RemovedWebhookRow, rows, [column("NAME", "name"), column("STATUS", "status")])
    for failure in failures:
        run.explain(failure)
    return exit_of_many(failures, len(rows) - len(failures))
