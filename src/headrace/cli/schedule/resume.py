"""Command: `headrace schedule resume`."""

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
    """Go on with a cron schedule, with its next tick."""
    change_schedule(run, name, "resume", "Resumed")
