"""Command: `headrace pipeline status`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from headrace.cli.completing import complete_pipelines
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape, grouped, printable
from headrace.cli.pipelines import PipelineRow, pipelines_of


@leaf(PipelineRow, Shape.ONE, broker=True)
@click.argument("name", shell_complete=complete_pipelines)
def command(run: Invocation, name: str) -> None:
    """Show one pipeline."""
    with pipelines_of(run) as pipelines:
        row = pipelines.need(name)
    run.output.one(row, lambda: "\n".join(printable(line) for line in _lines(row)))
    if row.state == "submitted":
        run.note("No supervisor has taken it yet. Start one with:  headrace pipeline supervise")


def _lines(row: PipelineRow) -> Iterator[str]:
    since = f" since {row.since}" if row.since and row.state not in ("submitted", "lost") else ""
    yield f"{row.name}  ({row.kind})  {row.state}{since}"
    if row.submitted:
        yield f"version  {row.version}, submitted by {row.by}"
        yield f"runs     {_schedule(row)}; run {row.run_number}, {row.restarts} of this version failed"
    yield f"records  {grouped(row.records)}  at {grouped(row.rate)}/s"
    yield f"lag      {grouped(row.lag)}" + (f", up to {row.newest}" if row.newest else "")
    if row.host:
        process = [f"pid {row.pid}", row.master] if row.pid else []
        yield f"where    {', '.join(filter(None, [row.host, *process]))}"
    yield f"updated  {row.updated}"
    if row.topics:
        yield f"topics   {', '.join(row.topics)}"
    for label, text in {"path": row.path, "table": row.table, "state": row.state_dir, "log": row.log, "ui": row.ui}.items():  # fmt: skip
        if text:
            yield f"{label:8} {text}"
    if row.skipped or row.dead_rows:
        yield f"missing  {grouped(row.skipped)} skipped, {grouped(row.dead_rows)} dead"
    if row.error:
        yield f"error    {row.error}"
    if row.next_try and row.state in ("backing-off", "failing", "waiting"):
        yield f"next     {row.next_try}" + (f", after {row.attempts} failures" if row.attempts else "")


def _schedule(row: PipelineRow) -> str:
    if row.cron:
        return f"cron {row.cron} (UTC)"
    return "once" if row.kind in ("replay", "audit", "redrive") else "all the time"
