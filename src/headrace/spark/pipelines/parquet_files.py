"""Adapter: Arrow batches into Parquet files, one for each hour, written in the Python worker (spark.md 3: four times as fast
as through the JVM). Files are synced before their names are told to anybody; the disk works while the next rows are fetched."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.core.ids import ZERO_UUID
from headrace.spark.from_numpy import booleans
from headrace.spark.plan import OffsetRange
from headrace.spark.schema import HEADERS, TIMESTAMP

_HOUR_US = 3_600_000_000
_ROW_GROUP_BYTES = 32 << 20
_OPEN_FILES = 64
_WAITING_BYTES = 128 << 20

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)


class HourFile:
    """One Parquet file under way, with the facts that the log wants about it."""

    def __init__(
        self,
        staging: Path,
        wanted: OffsetRange,
        hour: int,
        schema: pa.Schema,
        compression: str,
        disk: ThreadPoolExecutor,
        number: int = 0,
    ) -> None:
        moment = datetime.fromtimestamp(hour * 3600, UTC)
        # The id is in the name: a topic that was created again has the same offsets. So is a number: an hour that was put aside
        # for others goes on in another file.
        span = f"{wanted.start:020d}-{wanted.end:020d}"
        name = f"{wanted.topic}-{wanted.partition}-{span}-{wanted.topic_id.hex()[:8]}-{number}.parquet"
        self.facts: dict[str, Any] = {
            "path": f"date={moment:%Y-%m-%d}/hour={moment:%H}/{name}",
            # The process is in the name: an attempt that is given up may still be writing.
            "staged": f"{moment:%Y%m%d%H}-{os.getpid()}-{name}",
            "topic": wanted.topic,
            "topic_id": "" if wanted.topic_id == ZERO_UUID else wanted.topic_id.hex(),
            "partition": wanted.partition,
            "rows": 0,
        }
        self._target = staging / self.facts["staged"]
        self._schema = schema
        self._writer = pq.ParquetWriter(
            self._target, schema, compression=compression, use_dictionary=["topic"], write_statistics=True
        )
        # Open from the first write to the last sync, so that no failure of the disk is told to somebody else (S8).
        self._file = os.open(self._target, os.O_RDONLY)
        self._disk = disk
        self._syncs: list[Future[None]] = []
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, batch: pa.RecordBatch) -> None:
        facts = self.facts
        offsets = batch.column("offset").to_numpy()
        times = batch.column("timestamp").cast(pa.int64()).to_numpy()
        facts["rows"] += batch.num_rows
        facts["min_offset"] = min(facts.get("min_offset", 1 << 62), int(offsets.min()))
        facts["max_offset"] = max(facts.get("max_offset", -1), int(offsets.max()))
        facts["min_time"] = min(facts.get("min_time", 1 << 62), int(times.min()))
        facts["max_time"] = max(facts.get("max_time", -(1 << 62)), int(times.max()))
        self._waiting.append(batch)
        self._size += batch.nbytes
        if self._size >= _ROW_GROUP_BYTES:
            self._write()

    @property
    def waiting(self) -> int:
        return self._size

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
            self._waiting, self._size = [], 0
            self._syncs.append(self._disk.submit(os.fsync, self._file))

    def close(self) -> None:
        """All rows are written; what is left is the disk's work."""
        self._write()
        self._writer.close()
        self._syncs.append(self._disk.submit(os.fsync, self._file))

    def finish(self) -> dict[str, Any]:
        """Everything is on the disk when this returns. One sync that failed fails the file; asking again proves nothing (S7)."""
        for sync in self._syncs:
            sync.result()
        self._syncs.clear()
        if self._file >= 0:
            self.facts["bytes"] = os.fstat(self._file).st_size
            self.forget()
        return self.facts

    def forget(self) -> None:
        """No sync may be on its way any more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class HourFiles:
    """The files of one task. A thread syncs what is written so far while the task fetches and decodes more."""

    def __init__(self, staging: Path, schema: pa.Schema, compression: str) -> None:
        self._staging = staging
        self._schema = schema
        self._compression = compression
        self._disk = ThreadPoolExecutor(1, "archive-sync")
        self._files: list[HourFile] = []

    def write(self, batches: Iterator[pa.RecordBatch], wanted: OffsetRange) -> None:
        """The rows of a range into one file for each hour they fall into; into several where hours come and go."""
        files: OrderedDict[int, HourFile] = OrderedDict()
        for batch in batches:
            for hour, rows in _by_hour(batch):
                if hour not in files:
                    self._make_room(files)
                    files[hour] = HourFile(
                        self._staging,
                        wanted,
                        hour,
                        self._schema,
                        self._compression,
                        self._disk,
                        len(self._files),
                    )
                    self._files.append(files[hour])
                files.move_to_end(hour)
                files[hour].add(rows)
        for file in files.values():
            file.close()
            file.finish()

    def _make_room(self, files: OrderedDict[int, HourFile]) -> None:
        """However many hours there are, few files are open and little waits in memory."""
        while len(files) >= _OPEN_FILES or sum(file.waiting for file in files.values()) > _WAITING_BYTES:
            _, oldest = files.popitem(last=False)
            oldest.close()
            oldest.finish()

    def finish(self) -> list[dict[str, Any]]:
        return [file.finish() for file in self._files]

    def __enter__(self) -> HourFiles:
        return self

    def __exit__(self, *problem: object) -> None:
        self._disk.shutdown()
        for file in self._files:
            file.forget()


def _by_hour(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    hours = batch.column("timestamp").cast(pa.int64()).to_numpy() // _HOUR_US
    first = int(hours[0])
    if (hours == first).all():
        yield first, batch
        return
    for hour in np.unique(hours).tolist():
        yield hour, batch.filter(booleans(hours == hour))


def merge_files(paths: list[str], target: Path, compression: str) -> dict[str, Any]:
    """Several files of one topic and hour as one, one row group in memory at a time; by partition and offset as far as each
    file is."""
    opened = sorted((_first_row(path), path) for path in paths)
    facts: dict[str, Any] = {"rows": 0}
    schema = pa.unify_schemas([pq.read_schema(path) for path in paths]).remove_metadata()
    with pq.ParquetWriter(target, schema, compression=compression, use_dictionary=["topic"]) as writer:
        for _, path in opened:
            file = pq.ParquetFile(path)
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                missing = [field for field in schema if field.name not in table.schema.names]
                for field in missing:
                    table = table.append_column(field, pa.nulls(table.num_rows, field.type))
                table = table.select(schema.names).cast(schema)
                writer.write_table(table)
                _count(facts, table)
    with target.open("rb") as done:
        os.fsync(done.fileno())
        facts["bytes"] = os.fstat(done.fileno()).st_size
    return facts


def _first_row(path: str) -> tuple[int, int]:
    """Partition and offset of its first row, as the statistics know them."""
    file = pq.ParquetFile(path)
    group = file.metadata.row_group(0)
    places = {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}
    return places["partition"].statistics.min, places["offset"].statistics.min


def _count(facts: dict[str, Any], table: pa.Table) -> None:
    offsets, times = table.column("offset"), table.column("timestamp").cast(pa.int64())
    facts["rows"] += table.num_rows
    facts["min_offset"] = min(facts.get("min_offset", 1 << 62), pc.min(offsets).as_py())
    facts["max_offset"] = max(facts.get("max_offset", -1), pc.max(offsets).as_py())
    facts["min_time"] = min(facts.get("min_time", 1 << 62), pc.min(times).as_py())
    facts["max_time"] = max(facts.get("max_time", -(1 << 62)), pc.max(times).as_py())
