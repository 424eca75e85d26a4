"""Adapter: work that stays in the Python worker: Spark schedules and retries, and only a small result crosses to the JVM.

Rows that go through the JVM cost 0.5 to 2 us each way (spark.md 2); an archive or a mirror has no use for them there. A
task is a picklable object with `run()`; its result is a small JSON document. It is a data source like any other, so it
runs the same on local Spark, on a cluster and through Connect.
"""

from __future__ import annotations

import base64
import json
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.core.errors import HeadraceError
from headrace.spark.from_numpy import one_text
from headrace.spark.reader import explained
from headrace.spark.worker_memory import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "headrace-fused"


class FusedTask(ABC):
    """One unit of work. It may run more than once, so what it leaves behind has to bear that."""

    @abstractmethod
    def run(self) -> dict[str, Any]:
        """In a Python worker of an executor."""


class FusedPartition(InputPartition):
    def __init__(self, task: FusedTask) -> None:
        super().__init__(None)
        self.task = task


class FusedReader(DataSourceReader):
    def __init__(self, tasks: Sequence[FusedTask]) -> None:
        self._tasks = tasks

    def partitions(self) -> list[InputPartition]:
        return [FusedPartition(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FusedPartition)
        settle()
        try:
            result = partition.task.run()
        except HeadraceError as problem:
            raise explained(problem) from problem
        yield pa.RecordBatch.from_arrays([one_text(json.dumps(result))], names=["result"])


class FusedDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "result string"

    def reader(self, schema: StructType) -> DataSourceReader:
        # Written by `run_fused` in this very job, so nobody else's pickle.
        return FusedReader(pickle.loads(base64.b64decode(self.options["tasks"])))  # noqa: S301


def run_fused(spark: SparkSession, tasks: Sequence[FusedTask]) -> list[dict[str, Any]]:
    """Run the tasks, one Spark task for each, and return their results."""
    if not tasks:
        return []
    spark.dataSource.register(FusedDataSource)
    packed = base64.b64encode(pickle.dumps(list(tasks))).decode()
    rows = spark.read.format(FORMAT).option("tasks", packed).load().collect()
    return [json.loads(row.result) for row in rows]
