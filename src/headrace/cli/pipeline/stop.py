"""Command: `headrace pipeline stop`."""

from __future__ import annotations

import time
from typing import ClassVar

import click

from headrace.cli.completing import complete_pipelines
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.pipelines import board_of, need_pipeline


class StopRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.stop/v1"
    name: str
    state: str
    """asked, or stopped (with --wait)."""


@leaf(StopRow, Shape.ONE, broker=True)
@click.argument("name", shell_complete=complete_pipelines)
@click.option("--wait", is_flag=True, help="Until it has stopped.")
def command(run: Invocation, name: str, wait: bool) -> None:
    """Ask a running pipeline to stop when its round is done."""
    from headrace.spark.pipelines.board import ALIVE

    with board_of(run) as board:
        row = need_pipeline(board, name)
        if row.state not in ALIVE:
            raise Failure(Exit.CONFLICT, f'pipeline "{name}" does not run: {row.state}')
        board.ask_to_stop(name, row.run)
        state = "asked"
        deadline = time.monotonic() + run.profile.timeout_ms / 1000 + 60
        while wait and state not in ("stopped", "finished", "failed", "lost"):
            if time.monotonic() > deadline:
                raise Failure(Exit.TIMEOUT, f'pipeline "{name}" has not stopped yet')
            from headrace.spark.sync_client import pause

            pause(0.3)
            state = need_pipeline(board, name).state
    run.output.one(StopRow(name=name, state=state), lambda: f"{name}: {state}")
