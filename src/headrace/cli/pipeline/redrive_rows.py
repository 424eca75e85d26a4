"""Command: `headrace pipeline redrive-rows`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_pipelines
from headrace.cli.failure import Exit, Failure, failure_of
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, counted
from headrace.cli.pipelines import definition_at
from headrace.cli.progress import progress
from headrace.core.errors import HeadraceError


class RedriveRowsRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.redrive-rows/v1"
    NAME: ClassVar[str] = "table"
    table: str
    rows: int
    """That are in the table now, and were not."""
    still_dead: int


@leaf(RedriveRowsRow, Shape.ONE, broker=True)
@click.argument("pipeline", shell_complete=complete_pipelines)
def command(run: Invocation, pipeline: str) -> None:
    """Try the dead rows of a table again, by the schema that its definition has now.

    PIPELINE is a definition's file, or the name of a submitted one. Rows that fit come into the table; the others stay among the
    dead. The pipeline may run meanwhile.

    Example:  headrace pipeline redrive-rows orders-table.toml
    """
    from headrace.spark.pipelines.definition import Table

    definition = definition_at(run, pipeline)
    if not isinstance(definition, Table):
        raise Failure(
            Exit.USAGE,
            f"{pipeline} is no pipeline of the kind table",
            "dead letters of queues:  headrace dlq redrive",
        )
    try:
        from headrace.spark.pipelines.redrive_rows import redrive_rows
    except ImportError as problem:
        raise Failure(
            Exit.FAILED, f"tables need pyiceberg (no {problem.name})", "pip install 'headrace[spark,tables]'"
        ) from None
    try:
        with progress(run, f"Trying the dead rows of {definition.table_name}", None):
            found = redrive_rows(definition)
    except HeadraceError as problem:
        raise failure_of(problem) from None
    row = RedriveRowsRow(table=definition.table_name, rows=found.rows, still_dead=found.still_dead)
    run.output.one(
        row,
        lambda: f"{counted(row.rows, 'row')} came into {row.table}; {row.still_dead} still dead",
    )
