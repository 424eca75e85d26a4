"""Command: `headrace topic tail`."""

from __future__ import annotations

import re

import click

from headrace.cli.completing import complete_topics
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.message_format import DEFAULT_FORMAT, MessageRow
from headrace.cli.output import Shape
from headrace.cli.parameters import Count, Duration, MessageFormat, Pattern, Where
from headrace.cli.reading import Reading
from headrace.cli.topic.consume import show_messages
from headrace.records.filters import Filter
from headrace.records.positions import Anchor, Position


@leaf(MessageRow, Shape.STREAM, broker=True)
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@click.option(
    "-n", "--lines", type=Count(), default=10, show_default=True, help="How many of the last ones first."
)
@click.option(
    "-f", "--format", "line", type=MessageFormat(), default=DEFAULT_FORMAT, help="As in '%t %p %o %k %v\\n'."
)
@click.option(
    "--grep", type=Pattern(), help="Only messages whose value or key matches this regular expression."
)
@click.option(
    "--where", type=Where(), help="""Only messages that match, as in 'tag == "eu" and value.amount > 100'."""
)
@click.option(
    "--wait", "patience_ms", type=Duration(), help="Give up (exit 7) when nothing comes for so long."
)
def command(
    run: Invocation,
    topics: tuple[str, ...],
    lines: int,
    line: str,
    grep: re.Pattern[str] | None,
    where: Filter | None,
    patience_ms: int | None,
) -> None:
    """Show the last messages of topics, then new ones as they come. Ctrl+C ends it."""
    start = Position(Anchor.LAST, lines)
    show_messages(run, Reading(topics, start, None, True, None, None, grep, patience_ms, where), line)
