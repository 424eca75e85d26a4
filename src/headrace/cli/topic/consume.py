"""Command: `headrace topic consume`."""

from __future__ import annotations

import re
import signal
import sys
from functools import partial

import click

from headrace.cli.completing import complete_groups, complete_topics
from headrace.cli.decoding import DecodedMessage, Decoder
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.message_format import DEFAULT_FORMAT, MessageRow, compile_format, for_terminal, message_row
from headrace.cli.output import Shape, counted
from headrace.cli.parameters import Count, Duration, MessageFormat, Number, Pattern, StartPosition, Where
from headrace.cli.progress import progress
from headrace.cli.reading import Reading, TopicConsumer
from headrace.records.filters import Filter
from headrace.records.positions import END, START, Anchor, Position


@leaf(MessageRow, Shape.STREAM, broker=True, short_output=False)
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@click.option(
    "-o", "--offset", "start", type=StartPosition(), help="start, end, -10, 42, @15m or @2026-11-01."
)
@click.option("-n", "--max", "limit", type=Count(), help="Stop after so many messages.")
@click.option("-F", "--follow", is_flag=True, help="Wait for more at the end; -o end implies it.")
@click.option(
    "-g", "--group", shell_complete=complete_groups, help="Read as a group: go on where it left off, commit."
)
@click.option("-p", "--partition", type=Number(0), help="Only this partition.")
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
    "--decode", is_flag=True, help="Show values and keys that name a schema of the registry as JSON."
)
@click.option(
    "--wait", "patience_ms", type=Duration(), help="Give up (exit 7) when nothing comes for so long."
)
def command(
    run: Invocation,
    topics: tuple[str, ...],
    start: Position | None,
    limit: int | None,
    follow: bool,
    group: str | None,
    partition: int | None,
    line: str,
    grep: re.Pattern[str] | None,
    where: Filter | None,
    decode: bool,
    patience_ms: int | None,
) -> None:
    """Read messages from topics.

    Reads what is there and stops; --follow goes on. Without --group nothing is committed, so looking changes nothing.

    In a format: %t topic, %p partition, %o offset, %k key, %v value, %h headers, %d time, %T time in ms, %S size.
    """
    if group is not None and start not in (None, START, END):
        raise Failure(
            Exit.USAGE,
            "a group goes on where it left off; it can only begin at start or end",
            f"headrace group seek {group} --to …   moves a group",
        )
    if group is not None and partition is not None:
        raise Failure(Exit.USAGE, "a group shares all partitions; --partition is for reading without one")
    start = start or START
    follow = follow or start.anchor is Anchor.END
    reading = Reading(topics, start, limit, follow, group, partition, grep, patience_ms, where)
    decoder = Decoder(run.http) if decode else None
    count = show_messages(run, reading, line, decoder)
    if decoder is not None and decoder.unread:
        run.warn(f"{counted(decoder.unread, 'value')} could not be read with the schema they name")
    if limit is not None and count < limit:
        run.note(f"{counted(count, 'message')}, and that is the end; --follow waits for more")


def show_messages(run: Invocation, reading: Reading, line: str, decoder: Decoder | None = None) -> int:
    """Print what the reader finds, at the latest when it waits for more; how many there were."""
    show = compile_format(line, for_terminal if sys.stdout.isatty() else bytes)
    see = None if decoder is None else decoder.see
    row = message_row if decoder is None else DecodedMessage.row
    reader = TopicConsumer(run.link, reading, before_waiting=sys.stdout.flush, see=see)
    # Told to stop is as good as Ctrl+C: what was shown is committed, and the group is left.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    count = 0
    try:
        with progress(run, f"Reading {', '.join(reading.topics)}", reading.limit, prints=True) as advance:
            for message in reader.messages():
                run.output.line(partial(row, message), lambda: show(message))  # noqa: B023
                count += 1
                advance(1)
    finally:
        # What was not shown is not committed either.
        sys.stdout.flush()
        reader.close()
        signal.signal(signal.SIGTERM, before)
    return count
