"""Command: `headrace pipeline list`."""

from __future__ import annotations

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape, column
from headrace.cli.pipelines import PipelineRow, board_of, rows_of


@leaf(PipelineRow, Shape.ITEMS, broker=True)
def command(run: Invocation) -> None:
    """List the pipelines that the broker has heard of."""
    with board_of(run) as board:
        rows = rows_of(board)
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
            column("UPDATED", "updated"),
            column("HOST", "host", wide=True),
            column("MASTER", "master", wide=True),
        ],
    )
