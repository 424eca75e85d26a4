"""Adapter: the data files of one task: Parquet, one for each value of the partition, synced before anybody hears of them.

Few files are open and little waits in memory whatever the data: the file that was used longest ago is finished first, and its
partition goes on in another one. Compaction mends that.
"""

from __future__ import annotations

import os
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from headrace.spark.from_numpy import booleans

_OPEN_FILES = 64
_ROW_GROUP_BYTES = 32 << 20
_WAITING_BYTES = 128 << 20
UNITS = {"": 0, "hour": 3_600_000_000, "day": 86_400_000_000}
"""What a partition may be, in microseconds."""


def local_path(location: str) -> Path | None:
    """The directory that a location without a scheme, or with file://, means; None: a store elsewhere."""
    if "://" not in location and not location.startswith("file:"):
        return Path(location)
    return (
        Path(location.removeprefix("file://").removeprefix("file:")) if location.startswith("file:") else None
    )


class DataFile:
    """One Parquet file under way."""

    def __init__(self, location: str, schema: pa.Schema, compression: str) -> None:
        self.location = location
        self.rows = 0
        self.waiting = 0
        self._schema = schema
        self._tables: list[pa.Table] = []
        path = local_path(location)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sink: Any = path.open("wb")
        else:
            store, inside = pa_fs.FileSystem.from_uri(location)
            self._sink = store.open_output_stream(inside)
        self._writer = pq.ParquetWriter(self._sink, schema, compression=compression, write_statistics=True)

    def add(self, table: pa.Table) -> None:
        self._tables.append(table)
        self.rows += table.num_rows
        self.waiting += table.nbytes
        if self.waiting >= _ROW_GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        if self._tables:
            self._writer.write_table(pa.concat_tables(self._tables))
            self._tables, self.waiting = [], 0

    def finish(self) -> dict[str, Any]:
        """It is on the disk, or in the store, when this returns."""
        self._write()
        self._writer.close()
        path = local_path(self.location)
        if path is not None:
            self._sink.flush()
            os.fsync(self._sink.fileno())
        self._sink.close()
        if path is not None:
            _sync_directory(path.parent)
        return {"path": self.location, "rows": self.rows}

    def drop(self) -> None:
        self._tables = []
        self._sink.close()


class DataFiles:
    """The files of one task into one table."""

    def __init__(self, directory: str, schema: pa.Schema, compression: str, unit: str = "") -> None:
        self._directory = directory
        self._schema = schema
        self._compression = compression
        self._width = UNITS[unit]
        self._open: OrderedDict[int, DataFile] = OrderedDict()
        self._done: list[dict[str, Any]] = []

    def write(self, table: pa.Table) -> None:
        for number, rows in _by_time(table, self._width):
            if number not in self._open:
                self._make_room()
                # The name is nobody else's: an attempt that was given up may still be writing.
                name = f"{self._directory}/{uuid.uuid4().hex}.parquet"
                self._open[number] = DataFile(name, self._schema, self._compression)
            self._open.move_to_end(number)
            self._open[number].add(rows)

    def _make_room(self) -> None:
        while (
            len(self._open) >= _OPEN_FILES or sum(one.waiting for one in self._open.values()) > _WAITING_BYTES
        ):
            self._done.append(self._open.popitem(last=False)[1].finish())

    def finish(self) -> list[dict[str, Any]]:
        while self._open:
            self._done.append(self._open.popitem(last=False)[1].finish())
        return self._done

    def __enter__(self) -> DataFiles:
        return self

    def __exit__(self, *problem: object) -> None:
        for file in self._open.values():
            file.drop()


def _by_time(table: pa.Table, width: int) -> Iterator[tuple[int, pa.Table]]:
    if not table.num_rows:
        return
    if not width:
        yield 0, table
        return
    numbers = table.column("_timestamp").cast(pa.int64()).to_numpy() // width
    first = int(numbers[0])
    if (numbers == first).all():
        yield first, table
        return
    for number in np.unique(numbers).tolist():
        yield number, table.filter(booleans(numbers == number))


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
