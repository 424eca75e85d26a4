"""Command: `headrace pipeline export`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_pipelines
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.parameters import Number
from headrace.cli.pipelines import pipelines_of, when


class PipelineExportRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.export/v1"
    name: str
    version: int
    by: str
    at: str
    toml: str
    """As its author wrote it."""


@leaf(PipelineExportRow, Shape.ONE, broker=True)
@click.argument("name", shell_complete=complete_pipelines)
@click.option("--version", type=Number(1), help="An earlier one; 50 are kept.")
def command(run: Invocation, name: str, version: int | None) -> None:
    """Print a version of a submitted definition, as it was written.

    Example:  headrace pipeline export orders-table --version 3
    """
    from headrace.spark.service import orders

    with pipelines_of(run) as pipelines:
        row = pipelines.need_submitted(name)
        found = orders.find_version(pipelines.store, name, version or row.version)
    made = PipelineExportRow(
        name=name, version=found.version, by=found.by, at=when(found.at_ms), toml=found.toml
    )
    run.output.one(made, lambda: made.toml.rstrip("\n"))
