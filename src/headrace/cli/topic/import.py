"""Command: `headrace topic import`."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.completing import complete_topics
from headrace.cli.failure import Exit
from headrace.cli.importing import imported_messages
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Rate
from headrace.cli.progress import progress
from headrace.cli.sending import LineSender
from headrace.cli.topic.produce import ProducedRow, report_produced


@leaf(ProducedRow, Shape.ONE, broker=True)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--keep-partitions", is_flag=True, help="Each message to the partition that it came from.")
@click.option("--keep-times", is_flag=True, help="With the times that they had; else they are of now.")
@click.option("--rate", type=Rate(), help="At most so fast, as in 50/s.")
def command(
    run: Invocation, topic: str, path: str, keep_partitions: bool, keep_times: bool, rate: float | None
) -> Exit:
    """Publish the messages of a file that was exported.

    JSON lines, as `headrace topic export`, `topic consume --json` and `dlq export` write them: key, value and headers are as they were,
    bytes too. - is stdin.
    """
    settings = {"acks": "all", "enable.idempotence": True}
    sender = LineSender(run.link, topic, settings, {}, rate)
    size = 0 if path == "-" else Path(path).stat().st_size
    source = imported_messages(path, keep_partitions=keep_partitions, keep_times=keep_times)
    with progress(run, f"Importing {path}", size, size=True) as advance:
        sender.send_all(source, advance)
    return report_produced(run, topic, sender)
