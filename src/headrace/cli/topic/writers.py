"""Command: `headrace topic writers`."""

from __future__ import annotations

from typing import ClassVar

import click
import msgspec

from headrace.cli.completing import complete_topics
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column


class WriterRow(Row):
    SCHEMA: ClassVar[str] = "headrace.topic.writers/v1"
    NAME: ClassVar[str] = "client"
    client: str
    """Its client id, or what it calls itself over HTTP."""
    door: str
    """kafka, REST or SQS."""
    per_s: float
    last: str


COLUMNS = [
    column("CLIENT", "client"),
    column("DOOR", "door"),
    column("IN/S", "per_s", right=True),
    column("LAST", "last"),
]


@leaf(WriterRow, Shape.ITEMS, http=True)
@click.argument("name", shell_complete=complete_topics)
def command(run: Invocation, name: str) -> None:
    """List who writes to a topic: the client ids of the last five minutes, the busiest first."""
    found = run.http.ask("GET", f"/api/v1/topics/{part(name)}/writers")
    rows = msgspec.convert(found["items"], list[WriterRow])
    if not rows:
        run.note("Nobody has written to it in the last five minutes.")
    run.output.items(WriterRow, rows, COLUMNS)
