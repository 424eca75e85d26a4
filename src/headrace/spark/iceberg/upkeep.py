"""Driver: small files into large ones, and old snapshots away: rounds of the same pipeline, never in the way of ingestion.

A task reads files of one partition value one row group at a time and writes one file with the same rows; the driver replaces them
in one snapshot that carries the offsets along. If somebody commits meanwhile the compare-and-swap fails, the new file never
was part of the table, and the next upkeep tries again.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table

from headrace.spark.fused import FusedTask, run_fused
from headrace.spark.iceberg.files import DataFile, local_path
from headrace.spark.iceberg.tables import data_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class MergeTask(FusedTask):
    paths: list[str]
    target: str
    schema: pa.Schema
    compression: str

    def run(self) -> dict[str, Any]:
        file = DataFile(self.target, self.schema, self.compression)
        for path in self.paths:
            with _opened(path) as source:
                parquet = pq.ParquetFile(source)
                for group in range(parquet.num_row_groups):
                    file.add(_fitted(parquet.read_row_group(group), self.schema))
        return {**file.finish(), "merged": self.paths}


def _opened(location: str) -> Any:
    path = local_path(location)
    if path is not None:
        return path.open("rb")
    store, inside = pa_fs.FileSystem.from_uri(location)
    return store.open_input_file(inside)


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """An older file has fewer columns."""
    for field in schema:
        if field.name not in table.schema.names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table.select(schema.names).cast(schema)


def tend(
    spark: SparkSession,
    table: Table,
    said: Mapping[str, str],
    *,
    at_least: int,
    target_bytes: int,
    keep_seconds: int,
    compression: str,
) -> int:
    """How many files went away."""
    gone = _compact(spark, table, said, at_least, target_bytes, compression)
    _expire(table, keep_seconds)
    return gone


def _compact(
    spark: SparkSession,
    table: Table,
    said: Mapping[str, str],
    at_least: int,
    target_bytes: int,
    compression: str,
) -> int:
    groups = _small_files(table, at_least, target_bytes)
    if not groups:
        return 0
    schema = table.schema().as_arrow().remove_metadata()
    plain = pa.schema([_without_metadata(field) for field in schema])
    tasks = [
        MergeTask(
            [file.file_path for file in group],
            f"{data_directory(table)}/{uuid.uuid4().hex}.parquet",
            plain,
            compression,
        )
        for group in groups
    ]
    merged = run_fused(spark, tasks)
    old = {file.file_path: file for group in groups for file in group}
    if sum(result["rows"] for result in merged) != sum(file.record_count for file in old.values()):
        raise RuntimeError("compaction would change the number of rows")
    try:
        with table.transaction() as change, change.update_snapshot(dict(said)).overwrite() as swap:
            for file in old.values():
                swap.delete_data_file(file)
            for result in merged:
                swap.append_data_file(parquet_file_to_data_file(table.io, table.metadata, result["path"]))
    except CommitFailedException:
        # Somebody was faster; what was merged never was part of the table.
        return 0
    return len(old) - len(merged)


def _without_metadata(field: pa.Field) -> pa.Field:
    """Files are found by the names of their columns, as those that tasks write; ids are the table's business."""
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_without_metadata(one) for one in kind])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(_without_metadata(kind.value_field))
    elif pa.types.is_large_string(kind):
        kind = pa.string()
    elif pa.types.is_large_binary(kind):
        kind = pa.binary()
    return pa.field(field.name, kind, field.nullable)


def _small_files(table: Table, at_least: int, target_bytes: int) -> list[list[IcebergFile]]:
    by_value: dict[str, list[IcebergFile]] = defaultdict(list)
    for task in table.scan().plan_files():
        if task.file.file_size_in_bytes < target_bytes // 2:
            by_value[repr(task.file.partition)].append(task.file)
    groups = []
    for files in by_value.values():
        group: list[IcebergFile] = []
        size = 0
        for file in sorted(files, key=lambda file: file.file_path):
            group.append(file)
            size += file.file_size_in_bytes
            if size >= target_bytes:
                groups.append(group)
                group, size = [], 0
        groups.append(group)
    return [group for group in groups if len(group) >= at_least]


def _expire(table: Table, keep_seconds: int) -> None:
    """Old snapshots go; the newest stays whatever its age, and with it the offsets."""
    before_ms = int((time.time() - keep_seconds) * 1000)
    table.refresh()
    if any(one.timestamp_ms < before_ms for one in table.snapshots()[:-1]):
        moment = datetime.fromtimestamp(before_ms / 1000, UTC)
        table.maintenance.expire_snapshots().older_than(moment).commit()
