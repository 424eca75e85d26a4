"""Codec: record batches into Arrow batches, column by column; never a Python object for a record.

The trick (spark.md 3): one Arrow binary array over the raw buffer whose boundaries are key0, key1, value0, value1, ...;
taking every fourth element makes the key column, and the second of each four the value column, each with one native copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.limits import MAX_DECOMPRESSED_BYTES
from headrace.spark.columns.decode import RecordColumns, header_columns, iter_columns
from headrace.spark.fetching import Piece
from headrace.spark.filters import RowFilter
from headrace.spark.from_numpy import lists, numbers, repeated
from headrace.spark.plan import OffsetRange
from headrace.spark.schema import HEADER, HEADERS, TIMESTAMP
from headrace.spark.values import ValueDecoder

_MICROSECONDS = 1000
CHUNK_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """Which columns to make, and how keys and values are decoded."""

    columns: tuple[str, ...]
    key_type: pa.DataType = field(default_factory=pa.binary)
    value: ValueDecoder = field(default_factory=ValueDecoder)
    where: RowFilter = field(default_factory=RowFilter)


def record_batches(piece: Piece, wanted: OffsetRange, layout: ColumnLayout) -> Iterator[pa.RecordBatch]:
    """The records of a piece that are in the range and pass the filter, about 2 MB in each Arrow batch."""
    lower = layout.where.newest_batch_before
    batches = piece.batches
    if lower is not None:
        batches = [entry for entry in batches if entry[1].max_timestamp * _MICROSECONDS >= lower]
    for columns in iter_columns(
        piece.buffer, batches, max_bytes=MAX_DECOMPRESSED_BYTES * 4, chunk_bytes=CHUNK_BYTES
    ):
        inside = columns.between_offsets(max(wanted.start, piece.first), wanted.end)
        if not layout.where.is_empty:
            inside = layout.where.select(inside, wanted.tp)
        if inside.offsets.size:
            yield to_arrow(inside, wanted, layout)


def to_arrow(columns: RecordColumns, wanted: OffsetRange, layout: ColumnLayout) -> pa.RecordBatch:
    count = columns.offsets.size
    spans = _spans(columns) if {"key", "value"} & set(layout.columns) else None
    arrays = []
    for name in layout.columns:
        if name == "key":
            arrays.append(_taken(spans, columns, 0, columns.key_nulls, layout.key_type))
        elif name == "value":
            raw = _taken(spans, columns, 2, columns.value_nulls, layout.value.raw_type)
            arrays.append(layout.value.decode(raw))
        elif name == "topic":
            arrays.append(repeated(wanted.topic, count))
        elif name == "partition":
            arrays.append(numbers(np.full(count, wanted.partition, dtype=np.int32)))
        elif name == "offset":
            arrays.append(numbers(columns.offsets))
        elif name == "timestamp":
            arrays.append(numbers(columns.timestamps * _MICROSECONDS, TIMESTAMP))
        elif name == "timestampType":
            arrays.append(numbers(columns.timestamp_types.astype(np.int32)))
        elif name == "headers":
            arrays.append(headers_array(columns))
    return pa.RecordBatch.from_arrays(arrays, names=list(layout.columns))


def _spans(columns: RecordColumns) -> pa.Array:
    """Key, gap, value, gap, key, ... as one binary array without a copy."""
    bounds = np.empty((columns.offsets.size, 4), dtype=np.int32)
    bounds[:, 0] = columns.key_starts
    bounds[:, 1] = columns.key_ends
    bounds[:, 2] = columns.value_starts
    bounds[:, 3] = columns.value_ends
    return _binary(columns.data, bounds.reshape(-1), pa.binary())


def _binary(data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int32], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, bounds.size - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])


def _taken(
    spans: pa.Array, columns: RecordColumns, first: int, nulls: npt.NDArray[np.bool_], kind: pa.DataType
) -> pa.Array:
    count = columns.offsets.size
    if nulls.all():
        return pa.nulls(count, kind)
    places = np.arange(first, 4 * count, 4, dtype=np.int32)
    taken = spans.take(numbers(places, nulls=nulls))
    # Text is not validated, as with CAST(value AS STRING): bytes are what the producer wrote.
    return taken if kind == pa.binary() else pa.Array.from_buffers(kind, count, taken.buffers())


def headers_array(columns: RecordColumns) -> pa.Array:
    found = header_columns(columns)
    bounds = np.empty((found.key_starts.size, 4), dtype=np.int32)
    bounds[:, 0], bounds[:, 1] = found.key_starts, found.key_ends
    bounds[:, 2], bounds[:, 3] = found.value_starts, found.value_ends
    spans = (
        _binary(columns.data, bounds.reshape(-1), pa.binary()) if bounds.size else pa.nulls(0, pa.binary())
    )
    places = np.arange(0, bounds.size, 4, dtype=np.int32)
    keys = spans.take(numbers(places))
    values = spans.take(numbers(places + 2, nulls=found.value_nulls))
    entries = pa.StructArray.from_arrays(
        [pa.Array.from_buffers(pa.string(), len(keys), keys.buffers()), values], fields=list(HEADER)
    )
    return lists(found.list_offsets, entries, HEADERS)


def raw_batches(piece: Piece, wanted: OffsetRange, columns: Sequence[str]) -> pa.RecordBatch:
    """One row for each record batch."""
    headers = np.array([header for _, header in piece.batches], dtype=np.int64).reshape(-1, 13)
    count = len(headers)
    made = {
        "topic": lambda: repeated(wanted.topic, count),
        "partition": lambda: numbers(np.full(count, wanted.partition, dtype=np.int32)),
        "baseOffset": lambda: numbers(headers[:, 0]),
        "lastOffset": lambda: numbers(headers[:, 0] + headers[:, 6]),
        "records": lambda: numbers(headers[:, 12].astype(np.int32)),
        "maxTimestamp": lambda: numbers(headers[:, 8] * _MICROSECONDS, TIMESTAMP),
        "batch": lambda: _raw_column(piece),
    }
    return pa.RecordBatch.from_arrays([made[name]() for name in columns], names=list(columns))


def _raw_column(piece: Piece) -> pa.Array:
    """The batches as they are. Those that are left out lie between them, so they are taken from a list of all spans."""
    bounds = np.array(
        [place for position, header in piece.batches for place in (position, position + header.size)],
        dtype=np.int32,
    )
    spans = _binary(np.frombuffer(piece.buffer, dtype=np.uint8), bounds, pa.binary())
    return spans.take(numbers(np.arange(0, bounds.size, 2, dtype=np.int32)))
