"""Command: `headrace pipeline restart`."""

from __future__ import annotations

import time
from typing import ClassVar

import click

from headrace.cli.completing import complete_pipelines
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.pipeline.stop import await_row
from headrace.cli.pipelines import author, pipelines_of


class RestartRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.restart/v1"
    name: str
    version: int
    state: str
    """asked, or the state that was waited for."""


@leaf(RestartRow, Shape.ONE, broker=True)
@click.argument("name", shell_complete=complete_pipelines)
@click.option("--wait", is_flag=True, help="Until it runs, or has done what there was to do.")
def command(run: Invocation, name: str, wait: bool) -> None:
    """Start a submitted pipeline again: a stopped one, one that waits to be tried again, or one that runs."""
    from headrace.spark.service import orders

    with pipelines_of(run) as pipelines:
        before = pipelines.need_submitted(name)
        made = orders.order(
            pipelines.store, name, author(run), int(time.time() * 1000), wanted=True, restart=True
        )
        state = "asked"
        if wait:
            state = await_row(
                run,
                pipelines,
                name,
                lambda row: (
                    row.run_number > before.run_number and row.state in ("running", "finished", "failed")
                ),
            ).state
    row_made = RestartRow(name=name, version=made.version, state=state)
    run.output.one(row_made, lambda: f"{name}: {state}")
