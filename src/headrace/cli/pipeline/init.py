"""Command: `headrace pipeline init`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import click

from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape


class PipelineInitRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.init/v1"
    name: str
    kind: str
    path: str


_KINDS = ("table", "archive", "replay", "transform", "aggregate", "program", "mirror", "audit", "redrive")


@leaf(PipelineInitRow, Shape.ONE, broker=True)
@click.argument("kind", type=click.Choice(_KINDS))
@click.argument("name")
@click.option(
    "-f", "--file", "path", type=click.Path(path_type=Path), help="Where to; NAME.toml when not given."
)
@click.option("--force", is_flag=True, help="Overwrite a file that exists.")
def command(run: Invocation, kind: str, name: str, path: Path | None, force: bool) -> None:
    """Write a definition to start from.

    Example:  headrace pipeline init archive orders-archive
    """
    from headrace.spark.pipelines.definition import DefinitionError, parse
    from headrace.spark.pipelines.examples import example

    text = example(kind, name, run.profile.bootstrap)
    try:
        parse(text)
    except DefinitionError as problem:
        raise Failure(Exit.USAGE, str(problem), code="INVALID_DEFINITION") from None
    target = path or Path(f"{name}.toml")
    if target.exists() and not force:
        raise Failure(
            Exit.CONFLICT, f"{target} exists", "overwrite it with --force, or name another with --file"
        )
    target.write_text(text)
    run.output.one(
        PipelineInitRow(name=name, kind=kind, path=str(target)),
        lambda: f"{target} is written. Edit it, then:  headrace pipeline run {target}",
    )
