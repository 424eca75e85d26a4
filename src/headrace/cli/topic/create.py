"""Command: `headrace topic create`."""

from __future__ import annotations

from typing import ClassVar

import click
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from headrace.cli.failure import Exit, exit_of_many
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column
from headrace.cli.parameters import MOST_PARTITIONS, MOST_REPLICAS, Number, Setting, TopicSetting


class CreatedTopicRow(Row):
    SCHEMA: ClassVar[str] = "headrace.topic.create/v1"
    name: str
    status: str
    """created, exists, valid (with --dry-run) or failed."""
    error: str | None = None


@leaf(CreatedTopicRow, Shape.ITEMS, broker=True, dry_run=True)
@click.argument("names", nargs=-1, required=True)
@click.option(
    "-p", "--partitions", type=Number(1, MOST_PARTITIONS), help="How many; the broker's default if not given."
)
@click.option(
    "-r",
    "--replicas",
    type=Number(1, MOST_REPLICAS),
    help="Copies of each; the broker's default if not given.",
)
@click.option("-c", "--config", "configs", type=TopicSetting(), multiple=True, help="As in retention.ms=7d.")
@click.option("--if-not-exists", is_flag=True, help="A topic that exists is no error.")
def command(
    run: Invocation,
    names: tuple[str, ...],
    partitions: int | None,
    replicas: int | None,
    configs: tuple[Setting, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> Exit:
    """Create topics.

    Example:  headrace topic create orders -p 6 -c retention.ms=7d -c max.message.bytes=5MiB
    """
    link = run.link
    wanted = [
        NewTopic(
            name,
            num_partitions=-1 if partitions is None else partitions,
            replication_factor=-1 if replicas is None else replicas,
            config=dict(configs),
        )
        for name in dict.fromkeys(names)
    ]
    futures = link.admin.create_topics(wanted, validate_only=dry_run, request_timeout=link.timeout_s)
    rows, failures = [], []
    for name, future in futures.items():
        failure = link.outcome(future, f'topic "{name}"')
        if failure is None:
            rows.append(CreatedTopicRow(name=name, status="valid" if dry_run else "created"))
        elif if_not_exists and failure.code == "TOPIC_ALREADY_EXISTS":
            rows.append(CreatedTopicRow(name=name, status="exists"))
        else:
            failures.append(failure)
            rows.append(CreatedTopicRow(name=name, status="failed", error=failure.what))
    run.output.items(CreatedTopicRow, rows, [column("NAME", "name"), column("STATUS", "status")])
    for failure in failures:
        run.explain(failure)
    return exit_of_many(failures, len(rows) - len(failures))
