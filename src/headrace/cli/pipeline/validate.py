"""Command: `headrace pipeline validate`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import click

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.pipelines import definition_of


class ValidRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.validate/v1"
    name: str
    kind: str
    valid: bool


@leaf(ValidRow, Shape.ONE)
@click.argument("file", type=click.Path(path_type=Path))
def command(run: Invocation, file: Path) -> None:
    """Check a definition without running it."""
    found = definition_of(file)
    run.output.one(
        ValidRow(name=found.name, kind=found.kind, valid=True),
        lambda: f"{file}: {found.kind} pipeline {found.name} is fine",
    )
