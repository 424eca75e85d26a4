"""Command: `headrace pipeline rollback`."""

from __future__ import annotations

import time
from typing import ClassVar

import click

from headrace.cli.completing import complete_pipelines
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.parameters import Number
from headrace.cli.pipelines import author, pipelines_of


class RollbackRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.rollback/v1"
    name: str
    version: int
    """The new one."""
    of: int
    """What it is again."""


@leaf(RollbackRow, Shape.ONE, broker=True)
@click.argument("name", shell_complete=complete_pipelines)
@click.option("--version", type=Number(1), required=True, help="The one to go back to.")
def command(run: Invocation, name: str, version: int) -> None:
    """Make an earlier version of a submitted pipeline the next one, and run it."""
    from headrace.spark.service import orders

    with pipelines_of(run) as pipelines:
        pipelines.need_submitted(name)
        made = orders.rollback(pipelines.store, name, version, author(run), int(time.time() * 1000))
    row = RollbackRow(name=name, version=made.version, of=version)
    run.output.one(row, lambda: f"{name}: version {row.version} is version {version} again")
