"""Command: `headrace cluster config get`."""

from __future__ import annotations

import click

from headrace.cli.broker_configs import COLUMNS, ConfigRow, broker_configs, pick_broker
from headrace.cli.completing import complete_broker_configs, complete_brokers
from headrace.cli.failure import Exit, Failure, did_you_mean
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Number


@leaf(ConfigRow, Shape.ITEMS, broker=True)
@click.argument("names", nargs=-1, shell_complete=complete_broker_configs)
@click.option("--broker", type=Number(0), shell_complete=complete_brokers, help="As this broker has them.")
@click.option("--changed", is_flag=True, help="Only those that were set.")
def command(run: Invocation, names: tuple[str, ...], broker: int | None, changed: bool) -> None:
    """Show configs of the cluster or of one broker: all of them, or those named."""
    found = broker_configs(run.link, pick_broker(run.link, broker))
    for name in names:
        if name not in found:
            raise Failure(Exit.NOT_FOUND, f'there is no config "{name}"', did_you_mean(name, found))
    rows = [
        row
        for name, row in sorted(found.items())
        if (not names or name in names) and not (changed and row.is_default)
    ]
    run.output.items(ConfigRow, rows, COLUMNS)
    if not rows:
        run.note("Nothing was set.")
