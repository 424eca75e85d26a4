"""Command: `headrace schedule add`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_topics
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Header
from headrace.cli.schedule.list import ScheduleRow
from headrace.core.moments import rfc3339


@leaf(ScheduleRow, Shape.ONE, http=True)
@click.argument("name")
@click.argument("cron")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("value")
@click.option("-k", "--key", help="The key of each message.")
@click.option("-H", "--header", "headers", type=Header(), multiple=True, help="A header of each message.")
def command(
    run: Invocation,
    name: str,
    cron: str,
    topic: str,
    value: str,
    key: str | None,
    headers: tuple[tuple[str, bytes], ...],
) -> None:
    """Send a message by the calendar: VALUE to TOPIC whenever CRON says so, in UTC. The same NAME again replaces.

    \b
    headrace schedule add nightly '0 3 * * *' jobs '{"do": "report"}'
    """
    body = {
        "name": name,
        "cron": cron,
        "topic": topic,
        "value": value,
        "key": key,
        "headers": {header: text.decode(errors="replace") for header, text in headers},
    }
    made = run.http.ask("POST", "/api/v1/schedules", body)
    row = ScheduleRow(name=name, topic=topic, due_ms=made["next_ms"], value=value, cron=cron)
    run.output.one(row, lambda: "")
    run.done(f"Next at {rfc3339(row.due_ms)}")
