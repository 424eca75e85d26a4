"""Adapter: history and now as one table: an archive up to the offset where its log ends, the topic from there on.

No gap and no overlap, because both halves are cut at the same offset of each partition; a gap that retention has made in
between is an error and not a silence.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.spark.connection import ClusterAccess
from headrace.spark.pipelines.archive_log import ArchiveLog, ArchiveState
from headrace.spark.pipelines.login import NOBODY, Login
from headrace.spark.plan import to_json
from headrace.spark.positions import earliest
from headrace.spark.sync_client import SyncClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, headers array<struct<key:string,value:binary>>"
_NAMES = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def archive_frame(
    spark: SparkSession, path: str | Path, topic: str | None = None, state: ArchiveState | None = None
) -> DataFrame:
    """The rows of an archive: exactly the files of its log, whatever else lies in the directory."""
    log = ArchiveLog(Path(path).resolve())
    if not log.exists():
        raise HeadraceError(
            ErrorKind.NOT_FOUND, f"{path} is no archive", "Make one with an archive pipeline."
        )
    state = state or log.read()
    paths = [
        str(log.path / file["path"])
        for file in state.files.values()
        if (topic is None or file["topic"] == topic) and state.has(file)
    ]
    if not paths:
        return spark.createDataFrame([], _COLUMNS)
    # The schema is given: with it Spark opens no file to plan, and old files without headers fit.
    return spark.read.schema(_COLUMNS).option("recursiveFileLookup", "true").parquet(*paths)


def topic_frame(
    spark: SparkSession, bootstrap: str, topic: str, starting: str = "earliest", login: Login = NOBODY
) -> DataFrame:
    return (
        spark.read.format("headrace")
        .options(**login.options(bootstrap))
        .option("subscribe", topic)
        .option("startingOffsets", starting)
        .load()
    )


def history_and_now(spark: SparkSession, bootstrap: str, topic: str, path: str | Path | None) -> DataFrame:
    """One table of everything there ever was, with readable keys and values."""
    if path is None:
        return _readable(topic_frame(spark, bootstrap, topic))
    # Read once: what an archiver adds meanwhile belongs to the live half of this table.
    state = ArchiveLog(Path(path).resolve()).read()
    with SyncClient(ClusterAccess(bootstrap)) as client:
        info = client.topic(topic)
        if state.ids.get(topic, info.topic_id.hex()) != info.topic_id.hex():
            raise HeadraceError(
                ErrorKind.UNKNOWN_TOPIC_ID,
                f"{path} is the archive of another topic of the name {topic}, which was deleted since",
                "Read the archive alone, or archive the new topic with on_loss = reset.",
            )
        leaders = info.leaders
        partitions = [TopicPartition(topic, number) for number in leaders]
        first = earliest(client, partitions)
    seam = {tp: state.end.get(tp, first[tp]) for tp in partitions}
    lost = [f"{tp} from {seam[tp]} to {first[tp] - 1}" for tp in partitions if first[tp] > seam[tp]]
    if lost:
        raise HeadraceError(
            ErrorKind.OFFSET_OUT_OF_RANGE,
            f"neither the archive nor the topic has {', '.join(lost)}",
            "Retention was faster than the archive.",
        )
    history = archive_frame(spark, path, topic, state).select(*_NAMES)
    now = topic_frame(spark, bootstrap, topic, json.dumps(to_json(seam))).select(*_NAMES)
    return _readable(history.unionByName(now))


def _readable(frame: DataFrame) -> DataFrame:
    return frame.selectExpr(
        "cast(key as string) as key",
        "cast(value as string) as value",
        "partition",
        "offset",
        "timestamp",
        "topic",
    )


def view_name(topic: str) -> str:
    """What SQL can say without quotes: orders.eu-1 is orders_eu_1."""
    return "".join(char if char.isalnum() else "_" for char in topic)
