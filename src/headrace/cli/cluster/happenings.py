"""Command: `headrace cluster happenings`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_topics
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column, moment
from headrace.cli.parameters import Number


class HappeningRow(Row):
    SCHEMA: ClassVar[str] = "headrace.cluster.happenings/v1"
    NAME: ClassVar[str] = "kind"
    at: str
    kind: str
    severity: str
    """good, info, warning or error."""
    thing: str
    names: list[str]
    """The first of those that it happened to."""
    count: int
    text: str
    seen_by: int


@leaf(HappeningRow, Shape.ITEMS, http=True)
@click.option("-n", "--max", "limit", type=Number(1, 500), default=50, show_default=True, help="So many.")
@click.option(
    "--severity", type=click.Choice(["good", "info", "warning", "error"]), help="This one, and worse."
)
@click.option(
    "--name",
    shell_complete=complete_topics,
    help="Only what happened to this topic, queue, webhook or broker.",
)
def command(run: Invocation, limit: int, severity: str | None, name: str | None) -> None:
    """Show what happened lately, the newest first.

    Elections, replicas that fall behind, brokers that come and go, webhooks that are disabled, dead letters that begin. Brokers keep it in memory.
    """
    query = {
        "limit": str(limit),
        **({"severity": severity} if severity else {}),
        **({"name": name} if name else {}),
    }
    found = run.http.ask("GET", "/api/v1/happenings", query=query)
    if found["missing"]:
        run.note(f"Without what only brokers {', '.join(map(str, found['missing']))} have seen.")
    rows = [
        HappeningRow(**{field: one[field] for field in HappeningRow.__struct_fields__})
        for one in found["items"]
    ]
    columns = [
        moment("WHEN", "at"),
        column("SEVERITY", "severity"),
        column("WHAT", "text"),
        column("BROKER", "seen_by", right=True, wide=True),
    ]
    run.output.items(HappeningRow, rows, columns)
