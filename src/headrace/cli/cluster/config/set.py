"""Command: `headrace cluster config set`."""

from __future__ import annotations

import click

from headrace.cli.broker_configs import COLUMNS, ConfigRow, broker_configs, pick_broker
from headrace.cli.cluster_view import ClusterLink
from headrace.cli.completing import complete_brokers
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Number, parse_config


@leaf(ConfigRow, Shape.ITEMS, broker=True, dry_run=True)
@click.argument("settings", nargs=-1, metavar="NAME=VALUE…")
@click.option("--unset", multiple=True, metavar="NAME", help="Back to the default.")
@click.option("--broker", type=Number(0), shell_complete=complete_brokers, help="Of this broker only.")
def command(
    run: Invocation, settings: tuple[str, ...], unset: tuple[str, ...], broker: int | None, dry_run: bool
) -> None:
    """Change configs of the cluster or of one broker, while it runs.

    \b
    headrace cluster config set log.retention.ms=86400000
    headrace cluster config set --unset log.retention.ms
    """
    if not settings and not unset:
        raise Failure(Exit.USAGE, "nothing to change", "give NAME=VALUE or --unset NAME")
    try:
        given = [parse_config(text) for text in settings]
    except ValueError as problem:
        raise Failure(Exit.USAGE, str(problem)) from None
    link = run.link
    ClusterLink(link).alter_broker(
        "" if broker is None else str(broker),
        [(one.key, one.value) for one in given] + [(name, None) for name in unset],
        dry_run=dry_run,
    )
    named = {*unset, *(one.key for one in given)}
    found = broker_configs(link, pick_broker(link, broker))
    run.output.items(ConfigRow, [row for name, row in sorted(found.items()) if name in named], COLUMNS)
    if dry_run:
        run.note("These would be taken; nothing was changed.")
