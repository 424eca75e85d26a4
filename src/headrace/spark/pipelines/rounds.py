"""Driver: what the pipelines that work in rounds have in common: what a round did, how many tasks, progress in a group."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.core.ids import TopicPartition
from headrace.spark.sync_client import CommittedOffset, SyncClient

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
        group, {tp: CommittedOffset(offset, "headrace-spark: progress") for tp, offset in offsets.items()}
    )
