"""Command: `headrace pipeline convert`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import click

from headrace.cli.failure import Exit, Failure, failure_of
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, counted
from headrace.cli.pipelines import definition_of
from headrace.core.errors import HeadraceError


class ConvertRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.convert/v1"
    NAME: ClassVar[str] = "table"
    table: str
    archive: str
    rows: int
    dead_rows: int
    files: int


@leaf(ConvertRow, Shape.ONE)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--archive",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="What an archive pipeline has written.",
)
def command(run: Invocation, file: Path, archive: Path) -> None:
    """Make an archive into the table of a pipeline, which then goes on where the archive ends.

    FILE is the definition of the table. The archive stays as it is; stop its pipeline first.

    Example:  headrace pipeline convert orders-table.toml --archive archive/orders
    """
    from headrace.spark.pipelines.definition import Table

    definition = definition_of(file)
    if not isinstance(definition, Table):
        raise Failure(
            Exit.USAGE, f"{file} is no pipeline of the kind table", "headrace pipeline init table NAME"
        )
    try:
        from headrace.spark.pipelines.conversion import convert
    except ImportError as problem:
        raise Failure(
            Exit.FAILED, f"tables need pyiceberg (no {problem.name})", "pip install 'headrace[spark,tables]'"
        ) from None
    try:
        found = convert(definition, archive)
    except HeadraceError as problem:
        raise failure_of(problem) from None
    row = ConvertRow(
        table=definition.table_name,
        archive=str(archive),
        rows=found.rows,
        dead_rows=found.dead_rows,
        files=found.files,
    )
    run.output.one(
        row,
        lambda: (
            f"{row.table} has {counted(row.rows, 'row')} of {row.archive}; run {file} to go on from there"
        ),
    )
