"""Command: `headrace topic describe`."""

from __future__ import annotations

from typing import Any, ClassVar

import click
import msgspec
from confluent_kafka.admin import ConfigResource, ConfigSource  # type: ignore[attr-defined]

from headrace.cli.broker_link import Span
from headrace.cli.completing import complete_topics
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column, counted
from headrace.core.units import format_duration_ms, format_size


class PartitionInfo(msgspec.Struct):
    partition: int
    leader: int
    replicas: list[int]
    in_sync: list[int]
    start_offset: int
    end_offset: int


class ConfigInfo(msgspec.Struct):
    name: str
    value: str | None
    source: str
    """default, topic, broker or settings."""
    read_only: bool


class TopicDetail(Row):
    SCHEMA: ClassVar[str] = "headrace.topic.describe/v1"
    name: str
    messages: int
    partitions: list[PartitionInfo]
    configs: list[ConfigInfo]


_SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "broker",
    ConfigSource.STATIC_BROKER_CONFIG: "settings",
    ConfigSource.DEFAULT_CONFIG: "default",
}


@leaf(TopicDetail, Shape.ITEMS, broker=True)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("-a", "--all", "every", is_flag=True, help="Configs with their default value too.")
def command(run: Invocation, names: tuple[str, ...], every: bool) -> None:
    """Show partitions, offsets and configs of topics."""
    link = run.link
    topics = link.need_topics(names)
    spans = link.spans(topics)
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
    futures = link.admin.describe_configs(resources, request_timeout=link.timeout_s)
    configs = {resource.name: link.answer(future) for resource, future in futures.items()}
    rows = [_detail(name, topic, spans, configs[name]) for name, topic in topics.items()]
    if not run.output.for_people:
        run.output.items(TopicDetail, rows, [])
        return
    for index, row in enumerate(rows):
        if index:
            click.echo()
        _show(run, row, every)


def _detail(
    name: str, topic: Any, spans: dict[tuple[str, int], Span], configs: dict[str, Any]
) -> TopicDetail:
    partitions = [
        PartitionInfo(
            number,
            partition.leader,
            list(partition.replicas),
            list(partition.isrs),
            spans[name, number].start,
            spans[name, number].end,
        )
        for number, partition in sorted(topic.partitions.items())
    ]
    return TopicDetail(
        name=name,
        messages=sum(entry.end_offset - entry.start_offset for entry in partitions),
        partitions=partitions,
        configs=[
            ConfigInfo(
                key, entry.value, _SOURCES.get(ConfigSource(entry.source), "other"), bool(entry.is_read_only)
            )
            for key, entry in sorted(configs.items())
        ],
    )


def _show(run: Invocation, row: TopicDetail, every: bool) -> None:
    replicas = max((len(entry.replicas) for entry in row.partitions), default=0)
    name = run.output.styled(row.name, bold=True)
    parts = (
        counted(len(row.partitions), "partition"),
        counted(replicas, "replica"),
        counted(row.messages, "message"),
    )
    click.echo(f"{name}: {', '.join(parts)}")
    run.output.table(
        row.partitions,
        [
            column("PARTITION", "partition", right=True),
            column("LEADER", "leader", right=True),
            Column("REPLICAS", lambda entry: ",".join(map(str, entry.replicas))),
            Column("IN SYNC", lambda entry: ",".join(map(str, entry.in_sync))),
            column("START", "start_offset", right=True),
            column("END", "end_offset", right=True),
        ],
        indent="  ",
    )
    shown = [entry for entry in row.configs if every or entry.source != "default"]
    if shown:
        columns = [column("CONFIG", "name"), Column("VALUE", _readable), column("SOURCE", "source")]
        run.output.table(shown, columns, indent="  ")
    else:
        run.note("  All configs have their defaults; --all lists them.")


def _readable(entry: ConfigInfo) -> str:
    """The exact value, and what it means."""
    if entry.value is None or not entry.value.lstrip("-").isdecimal():
        return entry.value or ""
    number = int(entry.value)
    if entry.name.endswith(".ms") and 1000 <= number < 2**62:
        return f"{number} ({format_duration_ms(number)})"
    if entry.name.endswith(".bytes") and 1024 <= number < 2**62:
        return f"{number} ({format_size(number)})"
    return entry.value
