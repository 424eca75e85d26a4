"""Codec: rows for a topic, as Arrow gives them, into record batches for each partition; never a Python object for a record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from headrace.core.ids import TopicPartition
from headrace.spark.columns.encode import BytesColumn, encode_headers
from headrace.spark.columns.ragged import Ragged
from headrace.spark.from_numpy import numbers, one_text
from headrace.spark.options import OptionError
from headrace.spark.partitioner import key_partitions

_TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}

# As scalars of Arrow: making one of a Python value imports pandas (see `from_numpy`).
_NO_TEXT = one_text("")[0]
_NO_BYTES = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")])[0]
_NOWHERE = numbers(np.array([-1], dtype=np.int32))[0]

Ints = npt.NDArray[np.int64]


def check_sink_schema(schema: StructType, topic: str | None) -> None:
    """Says what is wrong with the columns before anything is written."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in kinds:
        raise OptionError(f'the column "value" is missing; there are {", ".join(kinds) or "none"}')
    if topic is None and "topic" not in kinds:
        raise OptionError('say where to write: the option "topic", or a column "topic"')
    for name, allowed in _TYPES.items():
        if name in kinds and kinds[name] not in allowed:
            hint = "; to_json(struct(*)) makes text of a row" if name == "value" else ""
            raise OptionError(f'the column "{name}" is {kinds[name]}, not {" or ".join(allowed)}{hint}')


class PartitionRows(NamedTuple):
    """Rows for one partition, ready for `encode_batches`."""

    tp: TopicPartition
    keys: BytesColumn | None
    values: BytesColumn
    timestamps: Ints
    headers: Ragged | None
    sizes: Ints
    """Bytes of key and value of each row."""


class SinkBatch(NamedTuple):
    rows: pa.RecordBatch
    topic: str | None
    """From the option; it wins over the column."""

    def topics(self) -> list[str]:
        if self.topic is not None:
            return [self.topic]
        names = pc.unique(self.rows.column("topic")).to_pylist()
        if None in names:
            raise OptionError('the column "topic" is null in some row')
        return sorted(names)

    def of_topic(self, name: str) -> pa.RecordBatch:
        if self.topic is not None:
            return self.rows
        mask = pc.equal(self.rows.column("topic"), one_text(name)[0])
        return self.rows if pc.all(mask).as_py() else self.rows.filter(mask)


def partition_rows(
    rows: pa.RecordBatch, topic: str, partitions: int, turn: int, now_ms: int
) -> Iterator[PartitionRows]:
    """The rows of one topic, partition by partition, each in the order in which they came."""
    placed = _places(rows, topic, partitions, turn)
    first = placed[0]
    if (placed == first).all():
        bounds = [(int(first), 0, rows.num_rows)]
    else:
        # 16 bits are sorted by their digits, which is several times faster.
        narrow = placed.astype(np.uint16) if partitions <= 1 << 16 else placed
        order = np.argsort(narrow, kind="stable")
        rows = rows.take(numbers(order))
        placed = placed[order]
        starts = np.flatnonzero(np.diff(placed, prepend=-1))
        stops = [*starts[1:].tolist(), rows.num_rows]
        bounds = [(int(placed[at]), at, stop) for at, stop in zip(starts.tolist(), stops, strict=True)]
    for partition, start, stop in bounds:
        yield _rows(rows.slice(start, stop - start), TopicPartition(topic, partition), now_ms)


def _places(rows: pa.RecordBatch, topic: str, partitions: int, turn: int) -> Ints:
    """Partition column, else the key's hash, else one partition for all of this batch, another for the next."""
    count = rows.num_rows
    placed = np.full(count, turn % partitions, dtype=np.int64)
    names = rows.schema.names
    if "key" in names:
        keys = bytes_column(rows.column("key"))
        hashed = key_partitions(keys.values, partitions)
        placed = hashed if keys.nulls is None else np.where(keys.nulls, placed, hashed)
    if "partition" in names:
        column = rows.column("partition")
        given = _numbers(pc.fill_null(column, _NOWHERE), np.dtype(np.int32)).astype(np.int64)
        placed = np.where(given >= 0, given, placed)
        if int(placed.max()) >= partitions:
            raise OptionError(
                f'partition {int(placed.max())} is asked for, and topic "{topic}" has {partitions}; '
                'drop the column "partition" to place rows by their key'
            )
    return placed


def _rows(rows: pa.RecordBatch, tp: TopicPartition, now_ms: int) -> PartitionRows:
    names = rows.schema.names
    values = bytes_column(rows.column("value"))
    keys = bytes_column(rows.column("key")) if "key" in names else None
    sizes = values.values.lengths if keys is None else values.values.lengths + keys.values.lengths
    times = np.full(rows.num_rows, now_ms, dtype=np.int64)
    if "timestamp" in names:
        column = pc.cast(rows.column("timestamp"), pa.timestamp("us", tz="UTC")).cast(pa.int64())
        now_us = numbers(np.array([now_ms * 1000]))[0]
        times = _numbers(pc.fill_null(column, now_us), np.dtype(np.int64)) // 1000
    headers = headers_column(rows.column("headers")) if "headers" in names else None
    return PartitionRows(tp, keys, values, times, headers, sizes)


def bytes_column(column: pa.Array) -> BytesColumn:
    """A binary or text column without a copy. A null has no bytes."""
    if not len(column):
        # One that comes from Spark may have not even the first bound (rows that all have an empty list of headers).
        return BytesColumn(Ragged(np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)))
    nulls = None
    if column.null_count:
        nulls = _nulls(column)
        column = pc.fill_null(column, _NO_TEXT if pa.types.is_string(column.type) else _NO_BYTES)
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    raw = np.zeros(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return BytesColumn(Ragged(raw, bounds.astype(np.int64)), nulls)


def _numbers(column: pa.Array, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """A column without nulls. Not `to_numpy`, which imports pandas (see `from_numpy`)."""
    return np.frombuffer(column.buffers()[1], dtype=kind)[column.offset : column.offset + len(column)]


def _nulls(column: pa.Array) -> npt.NDArray[np.bool_]:
    bits = np.unpackbits(np.frombuffer(column.buffers()[0], dtype=np.uint8), bitorder="little")
    found: npt.NDArray[np.bool_] = bits[column.offset : column.offset + len(column)] == 0
    return found


def headers_column(column: pa.Array) -> Ragged:
    """A null list is no headers."""
    lengths = np.diff(_numbers(column.offsets, np.dtype(np.int32)).astype(np.int64))
    if column.null_count:
        lengths[_nulls(column)] = 0
    bounds: Ints = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
    entries = column.flatten()
    keys, values = entries.flatten()
    return encode_headers(bounds, bytes_column(keys), bytes_column(values))
