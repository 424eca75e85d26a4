"""Command: `headrace topic alter`."""

from __future__ import annotations

from typing import ClassVar

import click
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)

from headrace.cli.cluster_view import ClusterLink, image_of
from headrace.cli.completing import complete_topics
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.moving import carry_out
from headrace.cli.output import Row, Shape
from headrace.cli.parameters import (
    MOST_PARTITIONS,
    MOST_REPLICAS,
    Duration,
    Number,
    Setting,
    TopicConfigName,
    TopicSetting,
)
from headrace.cluster.reassignment import resized


class AlteredRow(Row):
    SCHEMA: ClassVar[str] = "headrace.topic.alter/v1"
    name: str
    changes: list[str]
    dry_run: bool


@leaf(AlteredRow, Shape.ONE, broker=True, dry_run=True)
@click.argument("name", shell_complete=complete_topics)
@click.option("-p", "--partitions", type=Number(1, MOST_PARTITIONS), help="Grow to this many partitions.")
@click.option("-r", "--replicas", type=Number(1, MOST_REPLICAS), help="So many replicas of every partition.")
@click.option(
    "--wait", "wait_ms", type=Duration(), default=600_000, help="With -r: how long to wait for them.  [10m]"
)
@click.option(
    "-c", "--config", "configs", type=TopicSetting(), multiple=True, help="Set, as in retention.ms=7d."
)
@click.option("--unset", type=TopicConfigName(), multiple=True, help="Back to the default.")
@click.option(
    "--append", type=TopicSetting(), multiple=True, help="Add to a list, as in cleanup.policy=compact."
)
@click.option("--subtract", type=TopicSetting(), multiple=True, help="Take out of a list.")
def command(
    run: Invocation,
    name: str,
    partitions: int | None,
    replicas: int | None,
    wait_ms: int,
    configs: tuple[Setting, ...],
    unset: tuple[str, ...],
    append: tuple[Setting, ...],
    subtract: tuple[Setting, ...],
    dry_run: bool,
) -> None:
    """Add partitions to a topic, or change its configs.

    With -r also its replicas: new ones are complete before old ones go. Partitions only ever grow. With keys, a key may go to another partition afterwards.
    """
    link = run.link
    current = len(link.need_topics([name])[name].partitions)
    operations = [
        *((AlterConfigOpType.SET, setting) for setting in configs),
        *((AlterConfigOpType.DELETE, Setting(key, "")) for key in unset),
        *((AlterConfigOpType.APPEND, setting) for setting in append),
        *((AlterConfigOpType.SUBTRACT, setting) for setting in subtract),
    ]
    if partitions is None and replicas is None and not operations:
        raise Failure(Exit.USAGE, "nothing to change", "give --partitions, --replicas, --config or --unset")
    changes = [_words(operation, setting) for operation, setting in operations]
    if operations:
        entries = [
            ConfigEntry(setting.key, setting.value, incremental_operation=operation)
            for operation, setting in operations
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        futures = link.admin.incremental_alter_configs(
            [resource], validate_only=dry_run, request_timeout=link.timeout_s
        )
        link.answer(next(iter(futures.values())), f'topic "{name}"')
    if partitions is not None:
        grown = link.admin.create_partitions(
            [NewPartitions(name, partitions)], validate_only=dry_run, request_timeout=link.timeout_s
        )
        link.answer(grown[name], f'topic "{name}"')
        changes.append(f"partitions {current} → {partitions}")
    if replicas is not None:
        changes += _resize(run, name, replicas, wait_ms, dry_run)
    row = AlteredRow(name=name, changes=changes, dry_run=dry_run)
    verb = "Would change" if dry_run else "Changed"
    run.output.one(row, lambda: "\n".join(f"{verb} {name}: {change}" for change in changes))


def _resize(run: Invocation, name: str, replicas: int, wait_ms: int, dry_run: bool) -> list[str]:
    """What changes, partition by partition; done when the new replicas are complete."""
    cluster = ClusterLink(run.link)
    image = image_of(cluster.view())
    living = len(image.live_brokers())
    if replicas > living:
        raise Failure(
            Exit.CONFLICT, f"{replicas} replicas do not fit on {living} brokers", "headrace cluster nodes"
        )
    plan = resized(image, image.topics[name], replicas)
    if plan and not dry_run:
        carry_out(run, cluster, plan, wait_ms)
    return [f"partition {move.partition} on brokers {', '.join(map(str, move.target))}" for move in plan] or [
        f"replicas are {replicas} already"
    ]


def _words(operation: AlterConfigOpType, setting: Setting) -> str:
    if operation is AlterConfigOpType.DELETE:
        return f"{setting.key} back to its default"
    sign = {AlterConfigOpType.SET: "=", AlterConfigOpType.APPEND: "+=", AlterConfigOpType.SUBTRACT: "-="}
    return f"{setting.key} {sign[operation]} {setting.value}"
