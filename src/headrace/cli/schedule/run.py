"""Command: `headrace schedule run`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_schedules
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.schedule_view import ChangedScheduleRow, change_schedule


@leaf(ChangedScheduleRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_schedules)
def command(run: Invocation, name: str) -> None:
    """Send the message of a cron schedule now, paused or not; its next tick stays."""
    change_schedule(run, name, "run", "Sent")
