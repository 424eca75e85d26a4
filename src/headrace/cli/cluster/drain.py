"""Command: `headrace cluster drain`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.cluster_view import ClusterLink, image_of
from headrace.cli.completing import complete_brokers
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.moving import carry_out
from headrace.cli.output import Column, Row, Shape, column, counted
from headrace.cli.parameters import Duration, Number
from headrace.cluster.reassignment import Reassignment, drain


class MoveRow(Row):
    SCHEMA: ClassVar[str] = "headrace.cluster.move/v1"
    NAME: ClassVar[str] = "topic"
    topic: str
    partition: int
    replicas: list[int]
    """Where it will be."""


MOVE_COLUMNS = [
    column("TOPIC", "topic"),
    column("PARTITION", "partition", right=True),
    Column("TO", lambda row: ",".join(map(str, row.replicas))),
]


def move_row(move: Reassignment) -> MoveRow:
    return MoveRow(topic=move.topic.name, partition=move.partition, replicas=list(move.target))


@leaf(MoveRow, Shape.ITEMS, broker=True, dry_run=True)
@click.argument("broker", type=Number(0), shell_complete=complete_brokers)
@click.option(
    "--wait", "wait_ms", type=Duration(), default=600_000, help="How long to wait for the moves.  [10m]"
)
def command(run: Invocation, broker: int, wait_ms: int, dry_run: bool) -> Exit:
    """Move everything off a broker, so that it can be taken away.

    New replicas are complete before the old ones go, so nothing is ever less safe than before. Partitions that no other
    broker can take are left where they are and named.
    """
    link = ClusterLink(run.link)
    view = link.view()
    if broker not in view.missing and all(node.broker_id != broker for node in view.cluster.brokers):
        raise Failure(Exit.NOT_FOUND, f"there is no broker {broker}", "headrace cluster nodes")
    plan = drain(image_of(view), broker)
    run.output.items(MoveRow, [move_row(move) for move in plan], MOVE_COLUMNS)
    if not dry_run and plan:
        carry_out(run, link, plan, wait_ms)
        run.done(f"Moved {counted(len(plan), 'partition')} off broker {broker}")
    planned = {(move.topic.name, move.partition) for move in plan}
    stuck = [
        f"{topic}-{partition.partition_index}"
        for topic, partition in view.partitions()
        if broker in partition.replica_nodes and (topic, partition.partition_index) not in planned
    ]
    if stuck:
        raise Failure(
            Exit.PARTIAL,
            f"no other broker can take {', '.join(stuck[:5])}{' and more' if len(stuck) > 5 else ''}",
            "every other broker that lives has a replica of them already: start another broker, then drain again",
        )
    return Exit.OK
