"""Command: `headrace pipeline validate`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import click

from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.pipelines import definition_of
from headrace.cli.progress import progress


class ValidRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.validate/v1"
    name: str
    kind: str
    valid: bool


@leaf(ValidRow, Shape.ONE, broker=True)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--online",
    is_flag=True,
    help="Ask the cluster, the catalog and the registry too, and Spark where it is installed.",
)
def command(run: Invocation, file: Path, online: bool) -> None:
    """Check a definition without running it.

    With --online also whether its topics are there and may be read and written, whether what it writes would come back to it
    through views or other submitted pipelines, whether stores and registries answer, and what Spark says about its SQL.

    Example:  headrace pipeline validate orders-paid.toml --online
    """
    found = definition_of(file, run)
    if online:
        from headrace.spark.pipelines.online import problems
        from headrace.spark.session import SparkMissing, require_spark

        with_spark = True
        try:
            require_spark()
        except SparkMissing:
            with_spark = False
            run.note("Spark is not installed here, so nobody has read the SQL")
        with progress(run, f"Asking about {found.name}", None):
            wrong = problems(found, with_spark=with_spark)
        if wrong:
            raise Failure(
                Exit.USAGE,
                f"{file}: {'; '.join(wrong)}",
                "docs/pipelines.md has every key",
                code="INVALID_DEFINITION",
            )
    run.output.one(
        ValidRow(name=found.name, kind=found.kind, valid=True),
        lambda: f"{file}: {found.kind} pipeline {found.name} is fine",
    )
