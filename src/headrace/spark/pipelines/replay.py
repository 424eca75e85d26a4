"""Pipeline: an archive back into a topic: a time range, a filter, a rate. Each partition in its order.

Exactly once for one replay: tasks note what they have done under the pipeline's name and the range, so running the same
definition again after a crash writes only what is missing.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.spark.pipelines.archive_log import ArchiveLog
from headrace.spark.pipelines.definition import Replay, SparkSettings
from headrace.spark.pipelines.login import Login
from headrace.spark.pipelines.rounds import Round
from headrace.spark.pipelines.tables import archive_frame
from headrace.spark.session import need_iceberg
from headrace.spark.sync_client import SyncClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark.iceberg.tables import TableState
    from headrace.spark.iceberg.view import TableView


_TASKS = 16
"""The same wherever it runs: what is done is noted for each task, and tasks of another number would have other rows."""


def rate_of_a_task(rate: int, partitions: int) -> int:
    """A task has all of a partition, so no more tasks than partitions have anything to send; the others' shares are not lost."""
    return max(1, rate // max(1, min(_TASKS, partitions)))


class ReplayPipeline:
    def __init__(self, definition: Replay, spark: SparkSession) -> None:
        self._definition = definition
        self._spark = spark
        self._done = False
        self._snapshot: int | None = None
        self._held: TableState | None = None

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "path": self._definition.path or self._definition.warehouse,
            "topics": [self._definition.topic],
        }

    def frame(self) -> DataFrame:
        """The rows that are wanted."""
        definition = self._definition
        frame = self._history()
        if definition.since:
            frame = frame.where(f"timestamp >= timestamp'{definition.since}'")
        if definition.until:
            frame = frame.where(f"timestamp < timestamp'{definition.until}'")
        if definition.where:
            text = frame.selectExpr(
                "* except (key, value)", "cast(key as string) key", "cast(value as string) value"
            )
            frame = text.where(definition.where)
        return frame

    def _history(self) -> DataFrame:
        from pyspark.sql import functions as F

        definition = self._definition
        if definition.path:
            return archive_frame(self._spark, definition.path, definition.source_topic or None)
        from headrace.spark.pipelines.kept_tables import has_bytes, table_records

        view = self._view()
        if not has_bytes(view):
            raise HeadraceError(
                ErrorKind.INVALID_PARAMETER,
                f"{definition.table} has the columns of a schema and not the bytes of each value",
                "Only a table without a schema, or with keep_raw = true, can be replayed.",
            )
        return table_records(self._spark, view).withColumn("topic", F.lit(definition.source_topic))

    def _view(self) -> TableView:
        """The newest snapshot when first asked: what comes meanwhile belongs to another replay."""
        need_iceberg()
        from headrace.spark.iceberg.view import TableView
        from headrace.spark.pipelines.kept_tables import state_of

        definition = self._definition
        view = TableView(definition.warehouse, definition.table, dict(definition.catalog))
        if self._snapshot is None:
            self._held, self._snapshot = state_of(view)
        return replace(view, snapshot_id=self._snapshot or None)

    def round(self) -> Round:
        if self._done:
            return Round()
        definition = self._definition
        partitions = self._prepare_topic()
        frame = self.frame()
        tasks = _TASKS
        rows = frame.count()
        # One task has all of a partition, in its order.
        ordered = frame.repartition(tasks, "topic", "partition").sortWithinPartitions(
            "topic", "partition", "offset"
        )
        columns = ["key", "value", "timestamp", "headers"] + (
            ["partition"] if definition.keep_partitions else []
        )
        writer = (
            ordered.select(*columns)
            .write.format("headrace")
            .mode("append")
            .options(**definition.options)
            .option("topic", definition.topic)
            .option("delivery", definition.delivery)
            .option("sinkId", self._sink_id())
        )
        if definition.rate:
            writer = writer.option("maxRecordsPerSecond", str(rate_of_a_task(definition.rate, partitions)))
        writer.save()
        self._done = True
        return Round(records=rows)

    def _prepare_topic(self) -> int:
        """The topic is there; when partitions are kept, with as many as the archive has. How many partitions history has."""
        definition = self._definition
        if definition.path:
            state = ArchiveLog(Path(definition.path).resolve()).read()
            wanted = [tp.partition + 1 for tp in state.end if definition.source_topic in ("", tp.topic)]
        else:
            self._view()
            assert self._held is not None
            wanted = [tp.partition + 1 for tp in self._held.offsets]
        count = max([1, *wanted]) if definition.keep_partitions else 1
        with SyncClient(definition.access()) as client:
            client.create_topic(definition.topic, count)
            client.grow_topic(definition.topic, count)
        return len(wanted)

    def _sink_id(self) -> str:
        """The same for the same replay of the same archive, so that a second run of it is a no-op."""
        if self._definition.path:
            history = str(sorted(ArchiveLog(Path(self._definition.path).resolve()).read().files))
        else:
            history = f"snapshot {self._snapshot}"
        # When, where and as whom it runs is no part of what it does.
        definition = msgspec.structs.replace(
            self._definition, spark=SparkSettings(), cron="", restart="on-failure", login=Login()
        )
        what = msgspec.json.encode(definition) + f"{history} {_TASKS}".encode()
        return f"replay-{self._definition.name}-{hashlib.sha256(what).hexdigest()[:16]}"

    def upkeep(self) -> int:
        return 0

    def close(self) -> None:
        pass
