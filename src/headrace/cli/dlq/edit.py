"""Command: `headrace dlq edit`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_queues
from headrace.cli.dlq_moves import RedriveRow, move, plan_move, show_plan
from headrace.cli.failure import Exit
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Number


@leaf(RedriveRow, Shape.ONE, http=True, dry_run=True)
@click.argument("name", shell_complete=complete_queues)
@click.option(
    "--set", "edits", multiple=True, required=True,
    help="""What changes, as in 'value.currency = "EUR"' or 'headers["trace"] = null'; may be given again.""",
)  # fmt: skip
@click.option(
    "--filter",
    "filter_text",
    default="",
    help="Only messages that match, as in 'partition = 0 and offset = 17'.",
)
@click.option("--max", "limit", type=Number(1), help="At most so many.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it is done.")
def command(
    run: Invocation,
    name: str,
    edits: tuple[str, ...],
    filter_text: str,
    limit: int | None,
    no_wait: bool,
    dry_run: bool,
) -> Exit:
    """Change dead letters where they are, all or some.

    `headrace dlq redrive` sends them back.

    What is edited says who did it and where the record as it was lies (headrace-edited-by, headrace-edited-from). What an edit does
    not fit stays as it is.
    """
    body = {"act": "edit", "set": list(edits), "filter": filter_text, "max": limit or 0}
    if dry_run:
        show_plan(run, plan_move(run, name, body))
        return Exit.OK
    return move(run, name, body, no_wait=no_wait)
