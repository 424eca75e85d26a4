"""Command: `headrace dlq export`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_queues
from headrace.cli.exporting import ExportRow, export, export_options
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape


@leaf(ExportRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_queues)
@export_options
def command(run: Invocation, name: str, file: str, kind: str, contains: str, where: str) -> None:
    """Write dead letters to a file, all or some. They stay where they are."""
    query = {"format": kind, "contains": contains, "where": where}
    export(run, name, f"/api/v1/queues/{part(name)}/export", file, query)
