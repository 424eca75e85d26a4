"""Adapter: what is in a queue now, as a table: a batch read that takes nothing and changes nothing (S4).

The broker is asked which offsets of each partition are not done (waiting, handed out or resting), and the tasks read those
from the log. The answer is that of the moment when Spark plans the read.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.client.queue_client import QueueClient
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.spark.options import QueueOptions, SourceOptions
from headrace.spark.plan import OffsetRange, pack, split
from headrace.spark.reader import ReadTask, explained, range_reader
from headrace.spark.schema import chosen_columns
from headrace.spark.sync_client import SyncClient


class QueuePeekReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        assert options.queue is not None
        self._options = options
        self._queue: QueueOptions = options.queue
        self._schema = schema
        chosen_columns(schema, options)

    def partitions(self) -> list[InputPartition]:
        try:
            ranges = self._ranges()
        except HeadraceError as problem:
            raise explained(problem) from problem
        pieces = split(ranges, max_records_per_task=self._options.max_records_per_partition)
        # Runs are many and short where letters were sent back here and there; a task takes many of them.
        tasks = pack(pieces, max(self._options.min_partitions, len({one.tp for one in pieces})))
        return [ReadTask(task) for task in tasks] or [ReadTask([])]

    def _ranges(self) -> list[OffsetRange]:
        queue = self._queue
        client = QueueClient(queue.url, queue.name, queue.token)
        try:
            names = next((row["topics"] for row in client.queues() if row["name"] == queue.name), None)
            if names is None:
                raise HeadraceError(ErrorKind.NOT_FOUND, f'there is no queue called "{queue.name}"')
            with SyncClient(self._options.access) as cluster:
                topics = cluster.topics(names)
            return [
                OffsetRange(name, number, first, end)
                for name, topic in sorted(topics.items())
                for number in topic.leaders
                for first, end in client.left(name, number)
            ]
        finally:
            client.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadTask)
        return range_reader(self._options, self._schema).read(partition.ranges)
