"""Command: `headrace cluster partitions`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.cluster_view import ClusterLink
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column
from headrace.core.ids import is_internal


class PlacedPartitionRow(Row):
    SCHEMA: ClassVar[str] = "headrace.cluster.partitions/v1"
    NAME: ClassVar[str] = "topic"
    topic: str
    partition: int
    leader: int
    replicas: list[int]
    in_sync: list[int]
    adding: list[int]
    removing: list[int]
    state: str
    """ok, behind, moving or no-leader."""


_URGENCY = {"no-leader": 0, "behind": 1, "moving": 2, "ok": 3}


@leaf(PlacedPartitionRow, Shape.ITEMS, broker=True)
@click.option("--troubled", is_flag=True, help="Only those without a leader, behind or being moved.")
@click.option("--internal", is_flag=True, help="Internal topics too.")
def command(run: Invocation, troubled: bool, internal: bool) -> None:
    """List partitions with leaders and replicas, those in trouble first."""
    view = ClusterLink(run.link).view()
    rows = []
    for topic, partition in view.partitions():
        if is_internal(topic) and not internal:
            continue
        moving = view.moving.get((topic, partition.partition_index))
        state = "ok"
        if partition.leader_id < 0:
            state = "no-leader"
        elif moving is not None:
            state = "moving"
        elif len(partition.isr_nodes) < len(partition.replica_nodes):
            state = "behind"
        rows.append(
            PlacedPartitionRow(
                topic=topic,
                partition=partition.partition_index,
                leader=partition.leader_id,
                replicas=list(partition.replica_nodes),
                in_sync=list(partition.isr_nodes),
                adding=list(moving.adding_replicas) if moving else [],
                removing=list(moving.removing_replicas) if moving else [],
                state=state,
            )
        )
    rows = [row for row in rows if not troubled or row.state != "ok"]
    rows.sort(key=lambda row: (_URGENCY[row.state], row.topic, row.partition))
    run.output.items(
        PlacedPartitionRow,
        rows,
        [
            column("TOPIC", "topic"),
            column("PARTITION", "partition", right=True),
            column("LEADER", "leader", right=True),
            Column("REPLICAS", lambda row: ",".join(map(str, row.replicas))),
            Column("IN SYNC", lambda row: ",".join(map(str, row.in_sync))),
            column("STATE", "state"),
        ],
    )
