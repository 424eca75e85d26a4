"""Driver: what the pipelines that work in rounds have in common: what a round did, how many tasks, progress in a group."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.spark.fetching import LOSS_HINT
from headrace.spark.positions import earliest, latest, topic_ids
from headrace.spark.stream_offsets import Sight, StreamOffset, losses, settled
from headrace.spark.sync_client import GroupOffset, SyncClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Round(NamedTuple):
    records: int = 0
    bytes: int = 0
    lag: int = 0
    """Records that are still to come."""


def task_count(spark: SparkSession) -> int:
    """How many tasks run at once."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:
        # Spark Connect has no context to ask.
        return os.cpu_count() or 2


def commit_progress(client: SyncClient, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """The job is a consumer group: its lag is there for `headrace group describe` and every Kafka tool."""
    client.commit_offsets(
        group, {tp: GroupOffset(offset, "headrace-spark: progress") for tp, offset in offsets.items()}
    )


def accepted(
    client: SyncClient,
    partitions: list[TopicPartition],
    known: StreamOffset,
    on_loss: str,
    begin: Callable[[list[TopicPartition]], dict[TopicPartition, int]],
) -> tuple[StreamOffset, dict[TopicPartition, int]]:
    """Where a round goes on, and where its topics end now. What is gone is refused, passed over and counted, or begun anew, as
    `on_loss` says. `begin` tells where partitions start that were not met before, or that are another topic's now."""
    ids = topic_ids(client, partitions)
    now = (
        Sight(latest(client, partitions), ids, earliest(client, partitions))
        if partitions
        else Sight({}, {}, {})
    )
    lost = losses(known, now)
    told = lost.told(on_loss)
    if told:
        raise HeadraceError(ErrorKind.OFFSET_OUT_OF_RANGE, told, LOSS_HINT)
    fresh = [tp for tp in partitions if tp not in known.offsets or tp.topic in lost.other or tp in lost.back]
    return settled(known, now, lost, begin(fresh) if fresh else {}), now.ends
