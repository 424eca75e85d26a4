"""Command: `headrace cluster unregister`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.cluster_view import ClusterLink
from headrace.cli.completing import complete_brokers
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.parameters import Number


class UnregisteredRow(Row):
    SCHEMA: ClassVar[str] = "headrace.cluster.unregister/v1"
    NAME: ClassVar[str] = "broker"
    broker: int


@leaf(UnregisteredRow, Shape.ONE, broker=True, confirms=True)
@click.argument("broker", type=Number(0), shell_complete=complete_brokers)
def command(run: Invocation, broker: int) -> None:
    """Forget a broker that will not come back. Drain it first: what only it holds is lost."""
    run.confirm(f"forget broker {broker}")
    ClusterLink(run.link).unregister(broker)
    run.output.one(UnregisteredRow(broker=broker), lambda: "")
    run.done(f"Broker {broker} is forgotten")
