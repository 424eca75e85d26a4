"""Adapter: batch reads for Spark: plan in the driver, fetch and decode in the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.core.errors import HeadraceError
from headrace.core.ids import ZERO_UUID
from headrace.spark.arrow import ColumnLayout, raw_batches, record_batches
from headrace.spark.direct import partition_directory, read_sealed
from headrace.spark.fetching import Piece, fetch_range, shared_client
from headrace.spark.filters import RowFilter, push
from headrace.spark.options import Positions, SourceOptions
from headrace.spark.plan import OffsetRange, batch_tasks, ranges_between
from headrace.spark.positions import find_partitions, resolve, topic_ids
from headrace.spark.schema import chosen_columns
from headrace.spark.sync_client import SyncClient
from headrace.spark.values import ValueDecoder
from headrace.spark.versions import arrow_schema, arrow_type
from headrace.spark.worker_memory import settle

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


class ReadTask(InputPartition):
    """What one Spark task reads: plain data, pickled to the executor."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)

    def __repr__(self) -> str:
        return "ReadTask(" + ", ".join(f"{one.tp}[{one.start}:{one.end}]" for one in self.ranges) + ")"


class ReadFailed(RuntimeError):
    """A refusal of the broker in a form that Spark shows whole: it prints the text and not the type's fields."""


def explained(problem: HeadraceError) -> ReadFailed:
    return ReadFailed(
        f"{problem.detail} ({problem.kind.name})" + (f". {problem.hint}" if problem.hint else "")
    )


@dataclass(frozen=True, slots=True)
class RangeReader:
    """Reads ranges into Arrow batches; the same in batch and streaming, in every task."""

    options: SourceOptions
    columns: tuple[str, ...]
    layout: ColumnLayout

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
        client = shared_client(self.options.access)
        try:
            for wanted in ranges:
                for piece in self.pieces(client, wanted):
                    if self.options.raw:
                        yield raw_batches(piece, wanted, self.columns)
                    else:
                        yield from record_batches(piece, wanted, self.layout)
        except HeadraceError as problem:
            raise explained(problem) from problem

    def pieces(self, client: SyncClient, wanted: OffsetRange) -> Iterator[Piece]:
        position = wanted.start
        if self.options.direct_read:
            for piece, behind in self._direct(client, wanted):
                position = behind
                if piece is not None and piece.batches:
                    yield piece
        if position < wanted.end:
            yield from fetch_range(
                client,
                wanted._replace(start=position),
                isolation=self.options.isolation,
                fail_on_data_loss=self.options.fail_on_data_loss,
                max_bytes=self.options.fetch_bytes,
                where=self.options.where,
            )

    def _direct(self, client: SyncClient, wanted: OffsetRange) -> Iterator[tuple[Piece | None, int]]:
        paths = self.options.direct_read_paths or client.log_dirs()
        topic_id = wanted.topic_id if wanted.topic_id != ZERO_UUID else client.topic(wanted.topic).topic_id
        directory = partition_directory(paths, wanted.topic, topic_id, wanted.partition)
        return iter(()) if directory is None else read_sealed(directory, wanted)


def range_reader(options: SourceOptions, schema: StructType, where: RowFilter | None = None) -> RangeReader:
    columns = chosen_columns(schema, options)
    if options.raw:
        return RangeReader(options, columns, ColumnLayout(columns))
    where = replace(where or RowFilter(), header=options.header_filter, where=options.where)
    key_type = pa.string() if options.key_format == "string" else pa.binary()
    return RangeReader(
        options, columns, ColumnLayout(columns, key_type, value_decoder(options, schema), where)
    )


def value_decoder(options: SourceOptions, schema: StructType) -> ValueDecoder:
    kinds: dict[str, Any] = {field.name: field.dataType for field in schema.fields}
    if options.value_format in ("json", "avro") and "value" in kinds and options.value_schema is not None:
        result = arrow_type(kinds["value"])
        inner = arrow_schema(kinds["value"]) if options.value_format == "json" else None
        return ValueDecoder(options.value_format, inner, options.value_schema, result)
    return ValueDecoder(options.value_format)


class HeadraceReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._where = RowFilter()
        chosen_columns(schema, options)

    def partitions(self) -> list[InputPartition]:
        try:
            with SyncClient(self._options.access) as client:
                ranges = self._where.cut(self._ranges(client))
        except HeadraceError as problem:
            raise explained(problem) from problem
        tasks = batch_tasks(
            ranges,
            min_tasks=self._options.min_partitions,
            max_records_per_task=self._options.max_records_per_partition,
        )
        # Spark wants at least one partition, also for nothing.
        return [ReadTask(group) for group in tasks] or [ReadTask([])]

    def _ranges(self, client: SyncClient) -> list[OffsetRange]:
        options = self._options
        partitions = [tp for tp in find_partitions(client, options) if self._where.keeps(tp)]
        if not partitions:
            return []
        start = resolve(client, partitions, options.starting, options.isolation)
        end = resolve(client, partitions, options.ending, options.isolation)
        if self._where.time_low is not None and not options.starting.by_time:
            # Everything before the first record that is young enough is too old, whatever the order of times.
            young = resolve(
                client, partitions, Positions(self._where.time_low // 1000, by_time=True), options.isolation
            )
            start = {tp: max(offset, young[tp]) for tp, offset in start.items()}
        return ranges_between(start, end, topic_ids(client, partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadTask)
        settle()
        return range_reader(self._options, self._schema, self._where).read(partition.ranges)


class PushdownReader(HeadraceReader):
    """With filter push-down. A class of its own: overriding `pushFilters` while Spark's setting is off is an error (trap 2)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        if self._options.raw:
            return filters
        self._where, left = push(filters, self._where)
        return left
