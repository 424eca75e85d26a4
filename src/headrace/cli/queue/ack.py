"""Command: `headrace queue ack`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_queues_and_subscriptions
from headrace.cli.failure import Exit, Failure, exit_of_many
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column


class AckedRow(Row):
    SCHEMA: ClassVar[str] = "headrace.queue.ack/v1"
    NAME: ClassVar[str] = "receipt"
    receipt: str
    status: str
    """acknowledged or failed."""
    error: str | None = None


@leaf(AckedRow, Shape.ITEMS, http=True)
@click.argument("name", shell_complete=complete_queues_and_subscriptions)
@click.argument("receipts", nargs=-1, required=True)
def command(run: Invocation, name: str, receipts: tuple[str, ...]) -> Exit:
    """Say that messages are done, by the receipts that `queue receive` gave."""
    rows: list[AckedRow] = []
    failures: list[Failure] = []
    for receipt in receipts:
        try:
            run.http.ask("DELETE", f"/queues/{part(name)}/messages/{part(receipt)}")
            rows.append(AckedRow(receipt=receipt, status="acknowledged"))
        except Failure as refused:
            failures.append(refused)
            rows.append(AckedRow(receipt=receipt, status="failed", error=refused.what))
    run.output.items(AckedRow, rows, [column("STATUS", "status"), column("RECEIPT", "receipt")])
    for failure in failures:
        run.explain(failure)
    return exit_of_many(failures, len(rows) - len(failures))
