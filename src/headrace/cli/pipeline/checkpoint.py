"""Command: `headrace pipeline checkpoint`."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import ClassVar

import click

from headrace.cli.completing import complete_pipelines
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column
from headrace.cli.pipelines import PipelineRow, Pipelines, author, pipelines_of


class PositionRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.checkpoint/v1"
    NAME: ClassVar[str] = "topic"
    topic: str
    partition: int
    position: int
    """The next offset that it reads."""
    end: int
    lag: int


@leaf(PositionRow, Shape.ITEMS, broker=True, confirms=True)
@click.argument("name", shell_complete=complete_pipelines)
@click.option(
    "--forget", is_flag=True, help="The next run may begin without the state that the last one has left."
)
def command(run: Invocation, name: str, forget: bool) -> None:
    """Show how far a submitted pipeline is, partition by partition, and where it keeps its state.

    A run that does not find the state of the one before, as on another host without the same disk, does not begin. With
    --forget it may: it reads from where its definition says, and what it has written before may be there twice.
    """
    from headrace.spark.service import orders

    with pipelines_of(run) as pipelines:
        row = pipelines.need_submitted(name)
        if forget:
            if row.state in ("starting", "running", "stopping"):
                raise Failure(
                    Exit.CONFLICT,
                    f'pipeline "{name}" is {row.state}',
                    f"headrace pipeline stop {name} --wait",
                )
            run.confirm(f"let {name} begin without its state in {row.state_dir}")
            orders.forget_state(pipelines.store, name, author(run), int(time.time() * 1000))
        rows = _positions(pipelines, row)
    run.note(_place(row))
    if not rows:
        run.note(f"{name} has committed no position.")
    run.output.items(
        PositionRow,
        rows,
        [
            column("TOPIC", "topic"),
            column("PARTITION", "partition", right=True),
            column("POSITION", "position", right=True),
            column("END", "end", right=True),
            column("LAG", "lag", right=True),
        ],
    )


def _place(row: PipelineRow) -> str:
    if row.host not in ("", socket.gethostname()):
        return f"state: {row.state_dir} on {row.host}"
    return f"state: {row.state_dir}" + ("" if Path(row.state_dir).is_dir() else " (not there yet)")


def _positions(pipelines: Pipelines, row: PipelineRow) -> list[PositionRow]:
    """As the group that carries the pipeline's name shows it to every Kafka tool."""
    from headrace.spark.positions import latest

    found = pipelines.client.committed_offsets(f"headrace-{row.kind}-{row.name}")
    known = pipelines.client.topics({tp.topic for tp in found}) if found else {}
    there = sorted(tp for tp in found if tp.topic in known)
    ends = latest(pipelines.client, there) if there else {}
    return [
        PositionRow(
            topic=tp.topic,
            partition=tp.partition,
            position=found[tp].offset,
            end=ends[tp],
            lag=max(0, ends[tp] - found[tp].offset),
        )
        for tp in there
    ]
