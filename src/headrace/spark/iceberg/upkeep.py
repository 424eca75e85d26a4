"""Driver: small files into large ones, and old snapshots away: rounds of the same pipeline, never in the way of ingestion.

A task reads files of one partition value one row group at a time and writes one file with the same rows; the driver replaces them
in one snapshot that carries the offsets along. If somebody commits meanwhile the compare-and-swap fails, the new file never
was part of the table, and the next upkeep tries again.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table

from headrace.spark.fused import FusedTask, run_fused
from headrace.spark.iceberg.columns import fitted, without_metadata
from headrace.spark.iceberg.files import DataFile, local_path
from headrace.spark.iceberg.tables import CommitTaken, data_directory, store_of, swap_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ORPHAN_SECONDS = 3 * 86_400


@dataclass
class MergeTask(FusedTask):
    paths: list[str]
    target: str
    schema: pa.Schema
    compression: str
    partition: tuple[Any, ...]
    store: dict[str, str]

    def run(self) -> dict[str, Any]:
        file = DataFile(self.target, self.schema, self.compression, self.partition, self.store)
        for path in self.paths:
            with opened(path, self.store) as source:
                parquet = pq.ParquetFile(source)
                for group in range(parquet.num_row_groups):
                    file.add(fitted(parquet.read_row_group(group), self.schema))
        return {**file.finish(), "merged": self.paths}


def opened(location: str, store: Mapping[str, str]) -> Any:
    path = local_path(location)
    return (
        path.open("rb")
        if path is not None
        else load_file_io(dict(store), location).new_input(location).open()
    )


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


def sweep(table: Table) -> int:
    """Delete files of the table's directories that no snapshot names and that are older than three days: what a crash, a lost race or an
    expired snapshot has left. Younger ones may be of a round that is under way."""
    table.refresh()
    named = _named_files(table)
    before = time.time() - ORPHAN_SECONDS
    gone = 0
    for kind in ("data", "metadata"):
        for location, changed in _listed(table, f"{table.location().rstrip('/')}/{kind}"):
            is_ours = location.endswith((".parquet", ".avro"))
            if is_ours and changed < before and _plain(location) not in named:
                table.io.delete(location)
                gone += 1
    return gone


def _named_files(table: Table) -> set[str]:
    found: set[str] = set()
    for snapshot in table.snapshots():
        found.add(_plain(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            found.add(_plain(manifest.manifest_path))
            found.update(
                _plain(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(table.io)
            )
    return found


def _plain(location: str) -> str:
    path = local_path(location)
    return str(path) if path is not None else location


def _listed(table: Table, directory: str) -> Iterator[tuple[str, float]]:
    path = local_path(directory)
    if path is not None:
        for file in path.glob("*") if path.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):
                yield str(file), file.stat().st_mtime
        return
    io = table.io
    assert isinstance(io, PyArrowFileIO)
    scheme, place, inside = PyArrowFileIO.parse_location(directory)
    chosen = pa_fs.FileSelector(inside, allow_not_found=True)
    for info in io.fs_by_scheme(scheme, place).get_file_info(chosen):
        yield f"{directory}/{info.base_name}", info.mtime_ns / 1e9


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
    plain = pa.schema([without_metadata(field) for field in schema])
    tasks = [
        MergeTask(
            [file.file_path for file in group],
            f"{data_directory(table)}/{uuid.uuid4().hex}.parquet",
            plain,
            compression,
            tuple(group[0].partition[at] for at in range(len(group[0].partition))),
            store_of(table),
        )
        for group in groups
    ]
    merged = run_fused(spark, tasks)
    old = {file.file_path: file for group in groups for file in group}
    if sum(result["rows"] for result in merged) != sum(file.record_count for file in old.values()):
        raise RuntimeError("compaction would change the number of rows")
    try:
        swap_files(table, list(old.values()), merged, said)
    except CommitTaken:
        # Somebody was faster; what was merged never was part of the table.
        return 0
    return len(old) - len(merged)


def _small_files(table: Table, at_least: int, target_bytes: int) -> list[list[IcebergFile]]:
    by_value: dict[str, list[IcebergFile]] = defaultdict(list)
    for task in table.scan().plan_files():
        # Files of a partitioning that is over stay as they are.
        if task.file.file_size_in_bytes < target_bytes // 2 and task.file.spec_id == table.spec().spec_id:
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
