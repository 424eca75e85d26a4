"""Command: `headrace dlq redrive`."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import click
import msgspec

from headrace.cli.completing import complete_queues
from headrace.cli.failure import Exit, Failure
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column, counted
from headrace.cli.parameters import Rate

LOOK_S = 0.2


class RedriveRow(Row):
    SCHEMA: ClassVar[str] = "headrace.dlq.redrive/v1"
    NAME: ClassVar[str] = "id"
    id: str
    source: str
    to: str
    """Empty: where each message came from."""
    status: str
    moved: int
    to_move: int
    rate: int
    filter: str
    started_ms: int
    failure: str


REDRIVE_COLUMNS = [
    column("TASK", "id"),
    column("QUEUE", "source"),
    column("STATUS", "status"),
    column("MOVED", "moved", right=True),
    column("OF", "to_move", right=True),
    column("FAILURE", "failure", wide=True),
]


def redrive_row(item: dict[str, Any]) -> RedriveRow:
    return msgspec.convert(item, RedriveRow)


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
@click.option("--max", "limit", type=click.IntRange(1), help="At most so many.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it is done.")
def command(
    run: Invocation,
    name: str,
    destination: str,
    rate: float | None,
    filter_text: str,
    limit: int | None,
    no_wait: bool,
    dry_run: bool,
) -> Exit:
    """Send dead letters back, all or some. Each is moved once, whatever breaks in between."""
    path = f"/api/v1/queues/{part(name)}"
    body = {"to": destination, "rate": int(rate or 0), "filter": filter_text, "max": limit or 0}
    if dry_run:
        plan = redrive_row(run.http.ask("POST", f"{path}/moves", {**body, "dry_run": True}))
        run.output.one(plan, lambda: "")
        run.done(
            f"Would move {counted(plan.to_move, 'message')}" + (f" ({plan.failure})" if plan.failure else "")
        )
        return Exit.OK
    began = time.monotonic()
    row = redrive_row(run.http.ask("POST", f"{path}/moves", body))
    while not no_wait and row.status in ("running", "cancelling"):
        time.sleep(LOOK_S)  # noqa: TID251 - a person waits for the broker here
        known = run.http.all_items(f"{path}/moves")
        row = next((redrive_row(item) for item in known if item["id"] == row.id), row)
    run.output.one(row, lambda: "")
    if row.status == "failed":
        raise Failure(Exit.FAILED, f"the redrive stopped after {row.moved} messages: {row.failure}")
    if no_wait:
        run.done(f"Started. See:  headrace dlq status {name}")
    else:
        run.done(
            f"Redriven {counted(row.moved, 'message')} in {time.monotonic() - began:.1f}s ({row.status})"
        )
    return Exit.OK
