"""Adapter: the data files of one task: Parquet, one for each value of the partition, synced before anybody hears of them.

Few files are open and little waits in memory whatever the data: the file that was used longest ago is finished first, and its
partition goes on in another one. Compaction mends that.
"""

from __future__ import annotations

import os
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io

from headrace.spark.iceberg.partitioning import Splitter

_OPEN_FILES = 64
_ROW_GROUP_BYTES = 32 << 20
_WAITING_BYTES = 128 << 20


_WHOLE = Splitter()


def local_path(location: str) -> Path | None:
    """The directory that a location without a scheme, or with file://, means; None: a store elsewhere."""
    if "://" not in location and not location.startswith("file:"):
        return Path(location)
    return (
        Path(location.removeprefix("file://").removeprefix("file:")) if location.startswith("file:") else None
    )


class DataFile:
    """One Parquet file under way. `store`: properties of pyiceberg for a store that is no local directory."""

    def __init__(
        self,
        location: str,
        schema: pa.Schema,
        compression: str,
        partition: tuple[Any, ...] = (),
        store: Mapping[str, str] | None = None,
    ) -> None:
        self.location = location
        self._partition = partition
        self.rows = 0
        self.waiting = 0
        self._schema = schema
        self._tables: list[pa.Table] = []
        path = local_path(location)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sink: Any = path.open("wb")
        else:
            self._sink = (
                load_file_io(dict(store or {}), location).new_output(location).create(overwrite=False)
            )
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
        return {"path": self.location, "rows": self.rows, "partition": list(self._partition)}

    def drop(self) -> None:
        self._tables = []
        self._sink.close()


class DataFiles:
    """The files of one task into one table."""

    def __init__(
        self,
        directory: str,
        schema: pa.Schema,
        compression: str,
        splitter: Splitter = _WHOLE,
        store: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self._schema = schema
        self._compression = compression
        self._splitter = splitter
        self._store = store
        self._open: OrderedDict[tuple[Any, ...], DataFile] = OrderedDict()
        self._done: list[dict[str, Any]] = []

    def write(self, table: pa.Table) -> None:
        for values, rows in self._splitter.split(table):
            if values not in self._open:
                self._make_room()
                # The name is nobody else's: an attempt that was given up may still be writing.
                name = f"{self._directory}/{uuid.uuid4().hex}.parquet"
                self._open[values] = DataFile(name, self._schema, self._compression, values, self._store)
            self._open.move_to_end(values)
            self._open[values].add(rows)

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


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
