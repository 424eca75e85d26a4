"""Command: `headrace dlq status`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_queues
from headrace.cli.dlq_moves import REDRIVE_COLUMNS, RedriveRow, redrive_row
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape


@leaf(RedriveRow, Shape.ITEMS, http=True)
@click.argument("name", shell_complete=complete_queues)
def command(run: Invocation, name: str) -> None:
    """Show how redrives are going, the latest first."""
    rows = [redrive_row(item) for item in run.http.all_items(f"/api/v1/queues/{part(name)}/moves")]
    if not rows:
        run.note(f"No redrive of {name} yet.")
    run.output.items(RedriveRow, rows, REDRIVE_COLUMNS)
