"""Command: `headrace cluster rebalance`."""

from __future__ import annotations

import click

from headrace.cli.cluster.drain import MOVE_COLUMNS, MoveRow, move_row
from headrace.cli.cluster_view import ClusterLink, image_of
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.moving import carry_out
from headrace.cli.output import Shape, counted
from headrace.cli.parameters import Duration
from headrace.cluster.reassignment import spread


@leaf(MoveRow, Shape.ITEMS, broker=True, dry_run=True)
@click.option(
    "--wait", "wait_ms", type=Duration(), default=600_000, help="How long to wait for the moves.  [10m]"
)
def command(run: Invocation, wait_ms: int, dry_run: bool) -> None:
    """Give every broker its share of partitions and leaderships.

    For after a broker was added or has come back. Leaderships also drift back by themselves, a few at a time.
    """
    link = ClusterLink(run.link)
    plan = spread(image_of(link.view()))
    run.output.items(MoveRow, [move_row(move) for move in plan], MOVE_COLUMNS)
    if dry_run:
        return
    if plan:
        carry_out(run, link, plan, wait_ms)
    led = link.elect_preferred()
    run.done(f"Moved {counted(len(plan), 'partition')} and {counted(led, 'leadership')}")
