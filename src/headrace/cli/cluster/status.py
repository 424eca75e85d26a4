"""Command: `headrace cluster status`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from headrace.cli.cluster_view import ClusterLink, ClusterView
from headrace.cli.failure import Exit
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, counted


class ClusterStatusRow(Row):
    SCHEMA: ClassVar[str] = "headrace.cluster.status/v1"
    NAME: ClassVar[str] = "cluster_id"
    cluster_id: str
    healthy: bool
    controller: int
    brokers: int
    fenced: list[int]
    """Down, starting, or gone and still counted on by partitions."""
    topics: int
    partitions: int
    leaderless: int
    under_replicated: int
    moving: int
    troubles: list[str]
    """What the brokers say of themselves: a full disk, a coordinator that does not answer, a task that keeps failing."""


@leaf(ClusterStatusRow, Shape.ONE, broker=True)
def command(run: Invocation) -> Exit:
    """Show how the cluster is: brokers, controller, partitions in trouble.

    The exit code is 1 when something is wrong.
    """
    link = ClusterLink(run.link)
    view = link.view()
    row = status_of(view, link.troubles(view))
    run.output.one(row, lambda: _words(row))
    return Exit.OK if row.healthy else Exit.FAILED


def status_of(view: ClusterView, troubles: Sequence[str] = ()) -> ClusterStatusRow:
    partitions = [partition for _, partition in view.partitions()]
    fenced = sorted({*view.missing, *(node.broker_id for node in view.cluster.brokers if node.is_fenced)})
    leaderless = sum(partition.leader_id < 0 for partition in partitions)
    behind = sum(len(partition.isr_nodes) < len(partition.replica_nodes) for partition in partitions)
    return ClusterStatusRow(
        cluster_id=view.cluster.cluster_id,
        healthy=not (fenced or leaderless or behind or troubles) and view.cluster.controller_id >= 0,
        controller=view.cluster.controller_id,
        brokers=len(view.cluster.brokers) + len(view.missing),
        fenced=fenced,
        topics=len(view.metadata.topics),
        partitions=len(partitions),
        leaderless=leaderless,
        under_replicated=behind,
        moving=len(view.moving),
        troubles=list(troubles),
    )


def _words(row: ClusterStatusRow) -> str:
    lines = [
        f"{'healthy' if row.healthy else 'in trouble'}: cluster {row.cluster_id}",
        f"  {counted(row.brokers, 'broker')}, controller {row.controller if row.controller >= 0 else 'none'}",
        f"  {counted(row.topics, 'topic')}, {counted(row.partitions, 'partition')}",
    ]
    lines += [
        f"  broker {number} is down or starting: start it, or move what it holds:\n    headrace cluster drain {number}"
        for number in row.fenced
    ]
    lines += [f"  {trouble}" for trouble in row.troubles]
    for number, what in (
        (row.leaderless, "without a leader"),
        (row.under_replicated, "with replicas that are behind"),
        (row.moving, "being moved"),
    ):
        if number:
            lines.append(f"  {counted(number, 'partition')} {what}")
    return "\n".join(lines)
