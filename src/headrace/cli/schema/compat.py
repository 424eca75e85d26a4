"""Command: `headrace schema compat`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_subjects
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.schema_view import CompatRow, level_of

LEVELS = [
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
]


@leaf(CompatRow, Shape.ONE, http=True)
@click.argument("subject", required=False, shell_complete=complete_subjects)
@click.option("--set", "level", type=click.Choice(LEVELS, case_sensitive=False), help="From now on.")
@click.option("--unset", is_flag=True, help="Let the subject follow the level of all again.")
def command(run: Invocation, subject: str | None, level: str | None, unset: bool) -> None:
    """Show or set which changes of schemas are allowed: of all subjects, or of one."""
    path = "/schemas/config" if subject is None else f"/schemas/config/{part(subject)}"
    if level is not None:
        run.http.ask("PUT", path, {"compatibility": level.upper()})
    elif unset:
        run.http.ask("DELETE", path)
    row = CompatRow(subject=subject, level=level_of(run.http, subject))
    run.output.one(row, lambda: row.level)
