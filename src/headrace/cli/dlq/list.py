"""Command: `headrace dlq list`."""

from __future__ import annotations

from typing import ClassVar

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column


class DeadLetterRow(Row):
    SCHEMA: ClassVar[str] = "headrace.dlq.list/v1"
    name: str
    messages: int
    sources: list[str]
    """The queues whose dead letters come here."""
    oldest_age_ms: int


@leaf(DeadLetterRow, Shape.ITEMS, http=True)
def command(run: Invocation) -> None:
    """List the queues that hold dead letters."""
    rows = [
        DeadLetterRow(
            name=item["name"],
            messages=item["ready"] + item["in_flight"] + item["delayed"],
            sources=item["dead_letter_of"],
            oldest_age_ms=item["oldest_age_ms"],
        )
        for item in run.http.all_items("/api/v1/queues")
        if item["dead_letter_of"]
    ]
    if not rows:
        run.note("No queue has dead letters. Give one a place for them:  headrace queue set NAME --dlq QUEUE")
    columns = [
        column("NAME", "name"),
        column("MESSAGES", "messages", right=True),
        Column("FROM", lambda row: ", ".join(row.sources)),
        Column("OLDEST", lambda row: f"{row.oldest_age_ms / 1000:.0f}s", True),
    ]
    run.output.items(DeadLetterRow, rows, columns)
