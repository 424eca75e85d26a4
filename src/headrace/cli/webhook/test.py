"""Command: `headrace webhook test`."""

from __future__ import annotations

from typing import ClassVar

import click
import msgspec

from headrace.cli.completing import complete_webhooks
from headrace.cli.failure import Exit
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.webhook_view import path_of

LONGEST_MS = 30_000


class TestedRow(Row):
    SCHEMA: ClassVar[str] = "headrace.webhook.test/v1"
    name: str
    ok: bool
    status: int
    """What the endpoint answered; 0 when there was no answer, or when it was asked to confirm."""
    detail: str
    duration_ms: int
    state: str


@leaf(TestedRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_webhooks)
def command(run: Invocation, name: str) -> Exit:
    """Send a signed test to the endpoint. One that has not confirmed yet is asked to confirm."""
    row = msgspec.convert(run.http.ask("POST", path_of(name, "test"), {}, wait_ms=LONGEST_MS), TestedRow)
    said = f"answered {row.status}" if row.status else row.detail
    run.output.one(row, lambda: f"{'ok' if row.ok else 'failed'}: {said} in {row.duration_ms} ms")
    return Exit.OK if row.ok else Exit.FAILED
