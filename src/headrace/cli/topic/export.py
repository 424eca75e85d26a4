"""Command: `headrace topic export`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_topics
from headrace.cli.exporting import ExportRow, export, export_options
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Number


@leaf(ExportRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_topics)
@export_options
@click.option("--from", "first", default="", help="From this time on, as in 2026-11-01T12:00:00Z.")
@click.option("--until", default="", help="Before this time.")
@click.option("-p", "--partition", type=Number(0), help="Only this one.")
def command(
    run: Invocation,
    name: str,
    file: str,
    kind: str,
    contains: str,
    where: str,
    first: str,
    until: str,
    partition: int | None,
) -> None:
    """Write the messages of a topic to a file.

    All or some of those that are there when it begins.
    """
    query = {"format": kind, "contains": contains, "where": where, "from": first, "until": until}
    if partition is not None:
        query["partition"] = str(partition)
    export(run, name, f"/topics/{part(name)}/export", file, query)
