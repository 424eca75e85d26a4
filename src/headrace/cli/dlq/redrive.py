"""Command: `headrace dlq redrive`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_queues
from headrace.cli.dlq_moves import RedriveRow, move, plan_move, show_plan
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Number, Rate


@leaf(RedriveRow, Shape.ONE, http=True, dry_run=True)
@click.argument("name", shell_complete=complete_queues)
@click.option(
    "--to",
    "destination",
    default="",
    help="Another queue than the one each message came from.",
    shell_complete=complete_queues,
)
@click.option("--rate", type=Rate(), help="At most so fast, as in 50/s.")
@click.option("--filter", "filter_text", default="", help="Only messages that match.")
@click.option(
    "--set", "edits", multiple=True, help="""Edit each on the way, as in 'value.currency = "EUR"'."""
)
@click.option("--max", "limit", type=Number(1), help="At most so many.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it is done.")
def command(
    run: Invocation,
    name: str,
    destination: str,
    rate: float | None,
    filter_text: str,
    edits: tuple[str, ...],
    limit: int | None,
    no_wait: bool,
    dry_run: bool,
) -> Exit:
    """Send dead letters back, all or some. Each is moved once, whatever breaks in between."""
    if rate is not None and rate != int(rate):
        raise Failure(
            Exit.USAGE,
            f"a redrive goes at a whole number of messages a second, not at {rate:.3g}",
            "--rate 1/s or more",
        )
    body = {
        "to": destination,
        "rate": int(rate or 0),
        "filter": filter_text,
        "set": list(edits),
        "max": limit or 0,
    }
    if dry_run:
        show_plan(run, plan_move(run, name, body))
        return Exit.OK
    return move(run, name, body, no_wait=no_wait)
