"""Command: `headrace dlq cancel`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_moves
from headrace.cli.dlq_moves import RedriveRow, redrive_row
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape, counted


@leaf(RedriveRow, Shape.ONE, http=True)
@click.argument("task", shell_complete=complete_moves)
def command(run: Invocation, task: str) -> None:
    """Stop a redrive. What was moved stays moved."""
    row = redrive_row(run.http.ask("DELETE", f"/api/v1/moves/{part(task)}"))
    run.output.one(row, lambda: "")
    run.done(f"Stopping after {counted(row.moved, 'message')}")
