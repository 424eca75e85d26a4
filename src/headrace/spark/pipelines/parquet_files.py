"""Adapter: Arrow batches into Parquet files, one for each hour, written in the Python worker (spark.md 3: four times as fast
as through the JVM). Files are synced before their names are told to anybody."""

from __future__ import annotations

import os
from collections.abc import Iterator
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
        self, staging: Path, wanted: OffsetRange, hour: int, schema: pa.Schema, compression: str
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

    def finish(self) -> dict[str, Any]:
        self._write()
        self._writer.close()
        with self._target.open("rb") as file:
            os.fsync(file.fileno())
            self.facts["bytes"] = os.fstat(file.fileno()).st_size
        return self.facts


def write_hours(
    batches: Iterator[pa.RecordBatch], wanted: OffsetRange, staging: Path, schema: pa.Schema, compression: str
) -> list[dict[str, Any]]:
    """The rows of a range into one file for each hour they fall into."""
    files: dict[int, HourFile] = {}
    for batch in batches:
        for hour, rows in _by_hour(batch):
            if hour not in files:
                files[hour] = HourFile(staging, wanted, hour, schema, compression)
            files[hour].add(rows)
    return [file.finish() for file in files.values()]


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
