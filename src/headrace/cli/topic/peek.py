"""Command: `headrace topic peek`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_topics
from headrace.cli.decoding import Decoder
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.message_format import DEFAULT_FORMAT, MessageRow
from headrace.cli.output import Shape
from headrace.cli.parameters import Count, MessageFormat, Number
from headrace.cli.reading import Reading
from headrace.cli.topic.consume import show_messages
from headrace.records.positions import Anchor, Position


@leaf(MessageRow, Shape.STREAM, broker=True)
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@click.option(
    "-n", "--max", "count", type=Count(), default=10, show_default=True, help="How many of the last ones."
)
@click.option("-p", "--partition", type=Number(0), help="Only this partition.")
@click.option(
    "-f", "--format", "line", type=MessageFormat(), default=DEFAULT_FORMAT, help="As in '%t %p %o %k %v\\n'."
)
@click.option(
    "--decode", is_flag=True, help="Show values and keys that name a schema of the registry as JSON."
)
def command(
    run: Invocation, topics: tuple[str, ...], count: int, partition: int | None, line: str, decode: bool
) -> None:
    """Look at the last messages of topics, and stop. Nothing is taken and nothing changes."""
    reading = Reading(topics, Position(Anchor.LAST, count), None, False, None, partition)
    if not show_messages(run, reading, line, Decoder(run.http) if decode else None):
        run.note("There is nothing yet.")
