"""Command: `headrace pipeline stop`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

import click

from headrace.cli.completing import complete_pipelines
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.pipelines import PipelineRow, Pipelines, author, pipelines_of
from headrace.cli.progress import progress


class PipelineStopRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.stop/v1"
    name: str
    state: str
    """asked, or stopped (with --wait)."""


_ENDS = ("stopped", "finished", "failed", "lost")


@leaf(PipelineStopRow, Shape.ONE, broker=True)
@click.argument("name", shell_complete=complete_pipelines)
@click.option("--wait", is_flag=True, help="Until it has stopped.")
def command(run: Invocation, name: str, wait: bool) -> None:
    """Ask a running pipeline to stop when its round is done.

    A submitted one stays stopped, on every supervisor, until it is restarted or submitted again.
    """
    from headrace.core.pipelines import ALIVE
    from headrace.spark.service import orders

    with pipelines_of(run) as pipelines:
        row = pipelines.need(name)
        if row.submitted:
            orders.order(pipelines.store, name, author(run), int(time.time() * 1000), wanted=False)
        elif row.state not in ALIVE:
            raise Failure(Exit.CONFLICT, f'pipeline "{name}" does not run: {row.state}')
        else:
            pipelines.board.ask_to_stop(name, row.run)
        state = await_row(run, pipelines, name, lambda row: row.state in _ENDS).state if wait else "asked"
    run.output.one(PipelineStopRow(name=name, state=state), lambda: f"{name}: {state}")


def await_row(
    run: Invocation, pipelines: Pipelines, name: str, is_so: Callable[[PipelineRow], bool]
) -> PipelineRow:
    """As long as anything is heard of it: a supervisor that holds it speaks every few seconds, and ends what hangs. How long a JVM takes to
    start is the machine's to say."""
    with progress(run, f"Waiting for {name}", None):
        return _await_row(run, pipelines, name, is_so)


def _await_row(
    run: Invocation, pipelines: Pipelines, name: str, is_so: Callable[[PipelineRow], bool]
) -> PipelineRow:
    from headrace.spark.sync_client import pause

    heard = ("", "")
    deadline = 0.0
    while True:
        row = pipelines.need(name)
        if is_so(row):
            return row
        if heard != (row.state, row.updated):
            heard = (row.state, row.updated)
            deadline = time.monotonic() + run.profile.timeout_ms / 1000 + 60
        if time.monotonic() > deadline:
            raise Failure(
                Exit.TIMEOUT, f'pipeline "{name}" is still {row.state}', f"headrace pipeline status {name}"
            )
        pause(0.3)
