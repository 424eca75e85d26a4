"""Command: `headrace pipeline history`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_pipelines
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column
from headrace.cli.parameters import Count
from headrace.cli.pipelines import pipelines_of, when


class RunHistoryRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.history/v1"
    NAME: ClassVar[str] = "run"
    run: int
    version: int
    outcome: str
    """running, finished, stopped, failed, or lost when nobody saw how it ended."""
    started: str
    ended: str
    seconds: float
    records: int
    bytes: int
    host: str
    pid: int
    log: str
    reason: str
    error: str
    """In full, up to 64 KiB."""


@leaf(RunHistoryRow, Shape.ITEMS, broker=True)
@click.argument("name", shell_complete=complete_pipelines)
@click.option("-n", "--limit", type=Count(), default=20, show_default=True, help="How many; 200 are kept.")
def command(run: Invocation, name: str, limit: int) -> None:
    """List the runs of a submitted pipeline, the newest first. Errors are whole in --json, and cut in the table."""
    with pipelines_of(run) as pipelines:
        pipelines.need_submitted(name)
        rows = [
            RunHistoryRow(
                run=one.number, version=one.version, outcome=one.outcome, started=when(one.started_ms),
                ended=when(one.ended_ms), seconds=max(0, one.ended_ms - one.started_ms) / 1000 if one.ended_ms else 0.0,
                records=one.records, bytes=one.bytes, host=one.host, pid=one.pid, log=one.log,
                reason=one.reason, error=one.error,
            )
            for one in pipelines.store.runs(name)[:limit]
        ]  # fmt: skip
    if not rows:
        run.note(f"{name} has not run yet.")
    run.output.items(
        RunHistoryRow,
        rows,
        [
            column("RUN", "run", right=True),
            column("OUTCOME", "outcome"),
            column("STARTED", "started"),
            Column("SECONDS", lambda row: f"{row.seconds:.0f}" if row.ended else None, right=True),
            column("RECORDS", "records", right=True),
            Column("WHY", _why),
            column("VERSION", "version", right=True, wide=True),
            column("HOST", "host", wide=True),
            column("LOG", "log", wide=True),
        ],
    )


def _why(row: RunHistoryRow) -> str | None:
    first = next((line for line in row.error.splitlines() if line.strip()), "")
    return ": ".join(text for text in (row.reason, first) if text) or None
