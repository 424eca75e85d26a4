"""Command: `headrace queue extend`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_queues_and_subscriptions
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.parameters import Duration


class ExtendedRow(Row):
    SCHEMA: ClassVar[str] = "headrace.queue.extend/v1"
    NAME: ClassVar[str] = "receipt"
    receipt: str
    visibility_ms: int


@leaf(ExtendedRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_queues_and_subscriptions)
@click.argument("receipt")
@click.argument("visibility_ms", metavar="DURATION", type=Duration())
def command(run: Invocation, name: str, receipt: str, visibility_ms: int) -> None:
    """Keep a message for longer, or give it back. It is ours for DURATION from now; 0s gives it back at once."""
    path = f"/queues/{part(name)}/messages/{part(receipt)}/extend"
    run.http.ask("POST", path, query={"visibility": f"{visibility_ms}ms"})
    run.output.one(ExtendedRow(receipt=receipt, visibility_ms=visibility_ms), lambda: "")
    run.done("Given back" if not visibility_ms else f"Yours for {visibility_ms / 1000:g}s more")
