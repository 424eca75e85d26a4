"""Command: `headrace dlq discard`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_queues
from headrace.cli.dlq_moves import RedriveRow, move, plan_move, show_plan
from headrace.cli.failure import Exit
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape, counted
from headrace.cli.parameters import Number


@leaf(RedriveRow, Shape.ONE, http=True, confirms=True, dry_run=True)
@click.argument("name", shell_complete=complete_queues)
@click.option("--filter", "filter_text", default="", help="Only messages that match.")
@click.option("--max", "limit", type=Number(1), help="At most so many.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it is done.")
def command(
    run: Invocation, name: str, filter_text: str, limit: int | None, no_wait: bool, dry_run: bool
) -> Exit:
    """Give dead letters up, all or some. Their records stay in the topic until retention takes them."""
    body = {"act": "discard", "filter": filter_text, "max": limit or 0}
    plan = plan_move(run, name, body)
    if dry_run:
        show_plan(run, plan)
        return Exit.OK
    run.confirm(f"discard {counted(plan.to_move, 'message')} of {name}")
    return move(run, name, body, no_wait=no_wait)
