"""Command: `headrace topic produce`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any, ClassVar

import click

from headrace.cli.completing import complete_subjects, complete_topics
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, counted
from headrace.cli.parameters import Header, Number, Rate
from headrace.cli.progress import progress
from headrace.cli.sending import LineSender, PartitionTally, outgoing_messages
from headrace.cli.views import about_views


class ProducedRow(Row):
    SCHEMA: ClassVar[str] = "headrace.topic.produce/v1"
    NAME: ClassVar[str] = "topic"
    topic: str
    produced: int
    failed: int
    bytes: int
    seconds: float
    partitions: list[PartitionTally]


@leaf(ProducedRow, Shape.ONE, broker=True)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("values", nargs=-1)
@click.option("-k", "--key", help="The key of every message.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Each line is key, this separator, value.")
@click.option("-H", "--header", "headers", type=Header(), multiple=True, help="A header of every message.")
@click.option("--file", "path", type=click.Path(exists=True, dir_okay=False), help="Read lines from a file.")
@click.option("--key-field", metavar="NAME", help="Lines are JSON; the key is this field of each.")
@click.option(
    "--schema",
    metavar="SUBJECT",
    shell_complete=complete_subjects,
    help="Values are JSON, and go out as the latest schema of this subject says (Avro, Protobuf, JSON Schema).",
)
@click.option("--tombstone", is_flag=True, help="One message with the key and no value: deletes the key.")
@click.option("-p", "--partition", type=Number(0), help="Only to this partition.")
@click.option("--rate", type=Rate(), help="At most so fast, as in 50/s.")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option(
    "-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none"
)
@click.option(
    "--idempotent", is_flag=True, help="Retries never repeat a message; takes half a second to start."
)
def command(
    run: Invocation,
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    key_separator: str | None,
    headers: tuple[tuple[str, bytes], ...],
    path: str | None,
    key_field: str | None,
    schema: str | None,
    tombstone: bool,
    partition: int | None,
    rate: float | None,
    acks: str,
    compression: str,
    idempotent: bool,
) -> Exit:
    """Publish messages to a topic: the VALUES given, or one per line of stdin.

    \b
    headrace topic produce hello 'first' 'second'
    headrace topic produce orders --file orders.jsonl --key-field id
    """
    if idempotent and acks != "all":
        raise Failure(Exit.USAGE, "--idempotent needs --acks all")
    if tombstone and key is None:
        raise Failure(Exit.USAGE, "a tombstone deletes a key, so it needs one", "add --key")
    if not values and not path and not tombstone and sys.stdin.isatty():
        run.note("One message per line; Ctrl+D ends.")
    fixed: dict[str, Any] = {"headers": list(headers)} if headers else {}
    if partition is not None:
        fixed["partition"] = partition
    settings = {"acks": acks, "compression.type": compression, "enable.idempotence": idempotent}
    if not idempotent:
        # A retry may repeat a message then, but it never changes their order.
        settings["max.in.flight.requests.per.connection"] = 1
    sender = LineSender(run.link, topic, settings, fixed, rate)
    bar = contextlib.nullcontext(lambda count: None) if path is None else _file_progress(run, path)
    lines = outgoing_messages(values, path, key, key_separator, key_field, tombstone)
    if schema is not None:
        from headrace.cli.encoding import Encoder

        lines = Encoder(run.http, schema).encoded(lines)
    with bar as advance:
        sender.send_all(lines, advance)
    return report_produced(run, topic, sender)


def _file_progress(run: Invocation, path: str) -> Any:
    return progress(run, f"Publishing {path}", Path(path).stat().st_size, size=True)


def report_produced(run: Invocation, topic: str, sender: LineSender) -> Exit:
    row = ProducedRow(
        topic=topic,
        produced=sender.produced,
        failed=sender.failed,
        bytes=sender.bytes,
        seconds=round(sender.seconds, 3),
        partitions=sender.tallies,
    )
    if sender.failure is not None and not sender.produced:
        raise about_views(run.link, topic, sender.failure)
    run.output.one(row, str)
    run.done(
        f"Published {counted(row.produced, 'message')} to {topic} in {row.seconds:.1f}s ({row.failed} failed)"
    )
    if sender.failure is not None:
        run.explain(sender.failure)
        return Exit.PARTIAL
    return Exit.OK
