"""Command: `headrace view create`."""

from __future__ import annotations

from typing import ClassVar

import click
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from headrace.cli.completing import complete_topics
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.parameters import Where
from headrace.cluster.views import VIEW_SOURCE, VIEW_WHERE
from headrace.records.filters import Filter


class CreatedViewRow(Row):
    SCHEMA: ClassVar[str] = "headrace.view.create/v1"
    name: str
    source: str
    where: str
    status: str
    """created, exists, or valid (with --dry-run)."""


@leaf(CreatedViewRow, Shape.ONE, broker=True, dry_run=True)
@click.argument("name")
@click.option("--of", "source", required=True, shell_complete=complete_topics, help="The topic to filter.")
@click.option(
    "--where", type=Where(), required=True, help="""As in 'tag in ("eu", "us") and value.amount > 100'."""
)
@click.option("--if-not-exists", is_flag=True, help="A view that exists is no error.")
def command(
    run: Invocation, name: str, source: str, where: Filter, if_not_exists: bool, dry_run: bool
) -> None:
    """Create a view of a topic: what matches, at the same offsets, for any Kafka client.

    Example:  headrace view create eu-orders --of orders --where 'tag == "eu" and value.amount > 100'
    """
    link = run.link
    link.need_topics([source])
    wanted = NewTopic(
        name,
        num_partitions=-1,
        replication_factor=-1,
        config={VIEW_SOURCE: source, VIEW_WHERE: where.expression},
    )
    future = link.admin.create_topics([wanted], validate_only=dry_run, request_timeout=link.timeout_s)[name]
    failure = link.outcome(future, f'view "{name}"')
    status = "valid" if dry_run else "created"
    if failure is not None:
        if not (if_not_exists and failure.code == "TOPIC_ALREADY_EXISTS"):
            raise failure
        status = "exists"
    row = CreatedViewRow(name=name, source=source, where=where.expression, status=status)
    run.output.one(row, lambda: f"{name}: a view of {source} ({status})")
    if status == "created":
        run.note(f"Read it with:  headrace topic consume {name}")
