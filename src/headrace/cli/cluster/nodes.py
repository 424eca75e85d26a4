"""Command: `headrace cluster nodes`."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from headrace.cli.cluster_view import ClusterLink
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column


class NodeRow(Row):
    SCHEMA: ClassVar[str] = "headrace.cluster.nodes/v1"
    NAME: ClassVar[str] = "id"
    id: int
    address: str
    rack: str | None
    state: str
    """live, fenced (down or starting), or gone: it has left, and partitions still count on it."""
    controller: bool
    leads: int
    replicas: int


@leaf(NodeRow, Shape.ITEMS, broker=True)
def command(run: Invocation) -> None:
    """List the brokers with what they hold."""
    view = ClusterLink(run.link).view()
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for _, partition in view.partitions():
        leads[partition.leader_id] += 1
        replicas.update(partition.replica_nodes)
    rows = [
        NodeRow(
            id=node.broker_id,
            address=f"{node.host}:{node.port}",
            rack=node.rack,
            state="fenced" if node.is_fenced else "live",
            controller=node.broker_id == view.cluster.controller_id,
            leads=leads[node.broker_id],
            replicas=replicas[node.broker_id],
        )
        for node in view.cluster.brokers
    ]
    rows += [
        NodeRow(
            id=number,
            address="-",
            rack=None,
            state="gone",
            controller=False,
            leads=0,
            replicas=replicas[number],
        )
        for number in sorted(view.missing)
    ]
    run.output.items(
        NodeRow,
        rows,
        [
            column("ID", "id", right=True),
            column("ADDRESS", "address"),
            column("RACK", "rack"),
            column("STATE", "state"),
            column("CONTROLLER", "controller"),
            column("LEADS", "leads", right=True),
            column("REPLICAS", "replicas", right=True),
        ],
    )
