"""Command: `headrace pipeline status`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_pipelines
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape, grouped, printable
from headrace.cli.pipelines import PipelineRow, board_of, need_pipeline


@leaf(PipelineRow, Shape.ONE, broker=True)
@click.argument("name", shell_complete=complete_pipelines)
def command(run: Invocation, name: str) -> None:
    """Show one pipeline."""
    with board_of(run) as board:
        row = need_pipeline(board, name)

    def told() -> str:
        lines = [
            f"{row.name}  ({row.kind})  {row.state}",
            f"records  {grouped(row.records)}  at {grouped(row.rate)}/s",
            f"lag      {grouped(row.lag)}",
            f"where    {row.host}, pid {row.pid}, {row.master}",
            f"updated  {row.updated}",
        ]
        if row.topics:
            lines.append(f"topics   {', '.join(row.topics)}")
        if row.path:
            lines.append(f"path     {row.path}")
        if row.table:
            lines.append(f"table    {row.table}")
        if row.skipped or row.dead_rows:
            lines.append(f"missing  {grouped(row.skipped)} skipped, {grouped(row.dead_rows)} dead")
        if row.error:
            lines.append(f"error    {row.error}")
        return "\n".join(printable(line) for line in lines)

    run.output.one(row, told)
