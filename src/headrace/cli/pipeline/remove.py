"""Command: `headrace pipeline remove`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_pipelines
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.pipelines import pipelines_of

_AT_REST = ("submitted", "stopped", "finished", "failed", "lost")


class RemovedRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.remove/v1"
    name: str
    status: str
    """removed, or would remove (with --dry-run)."""


@leaf(RemovedRow, Shape.ONE, broker=True, confirms=True, dry_run=True)
@click.argument("name", shell_complete=complete_pipelines)
def command(run: Invocation, name: str, dry_run: bool) -> None:
    """Take a pipeline away: its definition with all versions, and its history.

    What it has written stays, and so do its state directory and its position.
    """
    from headrace.spark.service import orders

    with pipelines_of(run) as pipelines:
        row = pipelines.need(name)
        if row.state not in _AT_REST:
            raise Failure(
                Exit.CONFLICT, f'pipeline "{name}" is {row.state}', f"headrace pipeline stop {name} --wait"
            )
        if not dry_run:
            run.confirm(f"remove {name} ({row.kind}, version {row.version}) and its history")
            if row.submitted:
                orders.remove(pipelines.store, name)
            pipelines.board.forget(name)
    status = "would remove" if dry_run else "removed"
    run.output.one(RemovedRow(name=name, status=status), lambda: f"{name}: {status}")
