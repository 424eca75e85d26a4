"""Adapter: Arrow batches into Parquet files, one for each hour, written in the Python worker (spark.md 3: four times as fast
as through the JVM). Files are synced before their names are told to anybody; the disk works while the next rows are fetched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.spark.from_numpy import booleans
from headrace.spark.plan import OffsetRange
from headrace.spark.schema import HEADERS, TIMESTAMP

_HOUR_US = 3_600_000_000
_ROW_GROUP_BYTES = 32 << 20

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
    ) -> None:
        moment = datetime.fromtimestamp(hour * 3600, UTC)
        name = f"{wanted.topic}-{wanted.partition}-{wanted.start:020d}-{wanted.end:020d}.parquet"
        self.facts: dict[str, Any] = {
            "path": f"date={moment:%Y-%m-%d}/hour={moment:%H}/{name}",
            # The process is in the name: an attempt that is given up may still be writing.
            "staged": f"{moment:%Y%m%d%H}-{os.getpid()}-{name}",
            "topic": wanted.topic,
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
        self.facts["bytes"] = os.fstat(self._file).st_size
        return self.facts

    def forget(self) -> None:
        """No sync may be on its way any more."""
        os.close(self._file)


class HourFiles:
    """The files of one task. A thread syncs what is written so far while the task fetches and decodes more."""

    def __init__(self, staging: Path, schema: pa.Schema, compression: str) -> None:
        self._staging = staging
        self._schema = schema
        self._compression = compression
        self._disk = ThreadPoolExecutor(1, "archive-sync")
        self._files: list[HourFile] = []

    def write(self, batches: Iterator[pa.RecordBatch], wanted: OffsetRange) -> None:
        """The rows of a range into one file for each hour they fall into."""
        files: dict[int, HourFile] = {}
        for batch in batches:
            for hour, rows in _by_hour(batch):
                if hour not in files:
                    files[hour] = HourFile(
                        self._staging, wanted, hour, self._schema, self._compression, self._disk
                    )
                    self._files.append(files[hour])
                files[hour].add(rows)
        for file in files.values():
            file.close()

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
    """Several files of one topic and hour as one, in the order of partition and offset."""
    table = pa.concat_tables([pq.read_table(path, partitioning=None) for path in paths])
    table = table.sort_by([("partition", "ascending"), ("offset", "ascending")])
    pq.write_table(table, target, compression=compression, use_dictionary=["topic"])
    with target.open("rb") as file:
        os.fsync(file.fileno())
        size = os.fstat(file.fileno()).st_size
    times = table.column("timestamp").cast(pa.int64())
    return {
        "rows": table.num_rows,
        "bytes": size,
        "min_offset": pc.min(table.column("offset")).as_py(),
        "max_offset": pc.max(table.column("offset")).as_py(),
        "min_time": pc.min(times).as_py(),
        "max_time": pc.max(times).as_py(),
    }
