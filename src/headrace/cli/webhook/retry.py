"""Command: `headrace webhook retry`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_deliveries, complete_webhooks
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.webhook_view import path_of


class RetriedRow(Row):
    SCHEMA: ClassVar[str] = "headrace.webhook.retry/v1"
    name: str
    retried: int


@leaf(RetriedRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_webhooks)
@click.option(
    "--delivery", metavar="ID", shell_complete=complete_deliveries, help="Only what this delivery was about."
)
def command(run: Invocation, name: str, delivery: str | None) -> None:
    """Try what waits for its next attempt now. What is among the dead letters comes back with `headrace dlq redrive`."""
    asked = run.http.ask("POST", path_of(name, "retry"), {"delivery": delivery} if delivery else {})
    row = RetriedRow(name=name, retried=asked["retried"])
    run.output.one(row, lambda: "")
    run.done(f"{row.retried} messages are tried again.")
