"""Command: `headrace topic search`."""

from __future__ import annotations

from typing import Any, ClassVar

import click
import msgspec

from headrace.cli.completing import complete_topics
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column, counted
from headrace.cli.parameters import Number
from headrace.cli.progress import progress
from headrace.cli.queue_view import short

STEP_MS = 10_000


class FoundRow(Row):
    SCHEMA: ClassVar[str] = "headrace.topic.search/v2"
    NAME: ClassVar[str] = "value"
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    """A text, or {"base64": …} for bytes that are not text."""
    headers: dict[str, Any]
    size: int


@leaf(FoundRow, Shape.ITEMS, http=True)
@click.argument("name", shell_complete=complete_topics)
@click.argument("words", default="")
@click.option("--where", default="", help="""Only messages that match, as in 'value.amount > 100'.""")
@click.option("--from", "first", default="", help="From this time on, as in 2026-11-01T12:00:00Z.")
@click.option("--until", default="", help="Before this time.")
@click.option("-p", "--partition", type=Number(0), help="Only this one.")
@click.option("-n", "--max", "limit", type=Number(1, 10_000), default=20, show_default=True)
@click.option("--oldest", is_flag=True, help="The oldest first.")
def command(
    run: Invocation,
    name: str,
    words: str,
    where: str,
    first: str,
    until: str,
    partition: int | None,
    limit: int,
    oldest: bool,
) -> None:
    """Look for messages in a topic, newest first.

    With WORDS in key, value or a header, or by a filter. Nothing is committed, nothing changes.
    """
    given = {"contains": words, "where": where, "from": first, "until": until}
    query = {key: value for key, value in given.items() if value}
    query["order"] = "oldest" if oldest else "newest"
    if partition is not None:
        query["partition"] = str(partition)
    rows: list[FoundRow] = []
    looked, cursor = 0, ""
    with progress(run, f"Looking through {name}", None) as advance:
        while len(rows) < limit:
            more = {"cursor": cursor} if cursor else {}
            step = {**query, "limit": str(min(500, limit - len(rows))), **more}
            found = run.http.ask("GET", f"/topics/{part(name)}/search", query=step, wait_ms=STEP_MS)
            rows += msgspec.convert(found["items"], list[FoundRow])
            looked += found["looked_at"]
            advance(found["looked_at"])
            cursor = found["next_cursor"] or ""
            if not cursor:
                break
    columns = [
        column("PARTITION", "partition", right=True),
        column("OFFSET", "offset", right=True),
        Column("KEY", lambda row: short(str(row.key or ""))),
        Column("VALUE", lambda row: short(str(row.value or ""))),
    ]
    run.output.items(FoundRow, rows, columns)
    run.note(f"{counted(len(rows), 'message')} found, {counted(looked, 'message')} looked at")
