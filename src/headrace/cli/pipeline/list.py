"""Command: `headrace pipeline list`."""

from __future__ import annotations

import time
from datetime import datetime

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Shape, column
from headrace.cli.pipelines import PipelineRow, pipelines_of


@leaf(PipelineRow, Shape.ITEMS, broker=True)
def command(run: Invocation) -> None:
    """List the pipelines that the broker has heard of."""
    with pipelines_of(run) as pipelines:
        rows = list(pipelines.rows().values())
    if not rows:
        run.note("No pipelines yet. Start with:  headrace pipeline init archive NAME")
    run.output.items(
        PipelineRow,
        rows,
        [
            column("NAME", "name"),
            column("KIND", "kind"),
            column("STATE", "state"),
            column("RECORDS", "records", right=True),
            column("RATE/S", "rate", right=True),
            column("LAG", "lag", right=True),
            Column("HEARD", lambda row: _age(row.updated), right=True),
            column("UPDATED", "updated", wide=True),
            column("VERSION", "version", right=True, wide=True),
            column("RESTARTS", "restarts", right=True, wide=True),
            column("HOST", "host", wide=True),
            column("MASTER", "master", wide=True),
            column("ERROR", "error", wide=True),
        ],
    )


def _age(moment: str) -> str | None:
    """12s, 5m, 3h, 2d ago."""
    if not moment:
        return None
    seconds = max(0, int(time.time() - datetime.fromisoformat(moment).timestamp()))
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
