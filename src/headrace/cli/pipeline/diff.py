"""Command: `headrace pipeline diff`."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import ClassVar

import click

from headrace.cli.completing import complete_pipelines
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.parameters import Number
from headrace.cli.pipelines import pipelines_of


class PipelineDiffRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.diff/v1"
    name: str
    before: str
    """version N."""
    after: str
    """version N, or the file."""
    same: bool
    diff: str
    """Unified."""


@leaf(PipelineDiffRow, Shape.ONE, broker=True)
@click.argument("name", shell_complete=complete_pipelines)
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--version",
    type=Number(1),
    help="An earlier one, against the newest (or FILE); the one before when there is no FILE.",
)
def command(run: Invocation, name: str, file: Path | None, version: int | None) -> None:
    """Show what has changed in a submitted definition: between two versions, or what FILE would change.

    Example:  headrace pipeline diff orders-table orders-table.toml
    """
    from headrace.spark.service import orders

    with pipelines_of(run) as pipelines:
        newest = pipelines.need_submitted(name).version
        first = version or (newest if file is not None else max(1, newest - 1))
        before = orders.find_version(pipelines.store, name, first).toml
        after = (
            file.read_text() if file is not None else orders.find_version(pipelines.store, name, newest).toml
        )
    names = f"version {first}", str(file) if file is not None else f"version {newest}"
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="")
    row = PipelineDiffRow(
        name=name, before=names[0], after=names[1], same=before == after, diff="\n".join(lines)
    )
    run.output.one(row, lambda: row.diff or f"{row.before} and {row.after} are the same")
