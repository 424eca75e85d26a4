"""Codec: a fetch buffer of many batches as numpy columns, without a Python object per record.

For Spark workers (numpy is not a dependency of the broker). The result holds positions, not values:
`data` is one contiguous buffer (the fetch buffer itself when nothing in it is compressed, else the plain bodies one
after another) and keys and values are [start, end) in it, rising from record to record; so an Arrow binary array over
`data` with boundaries key0, key1, value0, value1, ... gives both columns with one native copy each (spark.md 3).

Where records start is the one sequential question; boundaries.py answers it.

Invariant: equal to `read.read_records`, record for record; and on hostile bytes CorruptBatch, nothing else (X10, X11).
The one difference: headers are only looked into by `header_columns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.core.limits import MIB
from headrace.core.ports import Buffer
from headrace.records.batch import HEADER_BYTES, MIN_RECORD_BYTES, BatchHeader, CorruptBatch, scan
from headrace.records.compression import inflate
from headrace.spark.columns.boundaries import record_bounds
from headrace.spark.columns.ragged import gather_varints

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_CHUNK_BYTES = 4 * MIB
_CHUNK_RECORDS = 40_000
"""What 4 MiB of 100-byte records are: compressed batches hide their size, so their records are counted."""


class RecordColumns(NamedTuple):
    data: Bytes
    offsets: Ints
    timestamps: Ints
    timestamp_types: npt.NDArray[np.int8]
    """0: the producer's time, 1: the broker's (LogAppendTime)."""
    key_starts: Ints
    key_ends: Ints
    key_nulls: Bools
    value_starts: Ints
    value_ends: Ints
    value_nulls: Bools
    header_starts: Ints
    """Where each record's first header begins in `data` (behind the count)."""
    header_counts: Ints
    record_ends: Ints

    def slice(self, start: int, stop: int) -> RecordColumns:
        """Records start..stop; views, no copies."""
        return RecordColumns._make((self.data, *(column[start:stop] for column in self[1:])))

    def between_offsets(self, start: int, stop: int) -> RecordColumns:
        """The records with start <= offset < stop; a fetch answer begins with a whole batch, so it may hold older ones."""
        first, last = np.searchsorted(self.offsets, (start, stop))
        return self.slice(int(first), int(last))


class HeaderColumns(NamedTuple):
    list_offsets: Ints
    """Record i has the headers list_offsets[i]..list_offsets[i+1] (Arrow's list layout)."""
    key_starts: Ints
    key_ends: Ints
    value_starts: Ints
    value_ends: Ints
    value_nulls: Bools


def decode_columns(
    buffer: Buffer, batches: Iterable[tuple[int, BatchHeader]] | None = None, *, max_bytes: int
) -> RecordColumns:
    """The records of `batches` (positions and headers as `scan` yields them), or of all data batches in the buffer.

    A caller that reads committed data passes the batches that are left when aborted ones are dropped. `max_bytes` caps
    the plain bytes of all batches together. CRCs are the caller's choice.
    """
    if batches is None:
        batches = [(position, header) for position, header in scan(buffer) if not header.is_control]
    chosen = [(position, header) for position, header in batches if header.record_count]
    data, body_starts, body_ends = _plain_data(buffer, chosen, max_bytes)
    headers = np.array([header for _, header in chosen], dtype=np.int64).reshape(len(chosen), 13)
    counts = headers[:, 12]
    if (counts < 0).any() or (counts * MIN_RECORD_BYTES > body_ends - body_starts).any():
        raise CorruptBatch("a batch can not hold as many records as it claims")
    starts, ends = record_bounds(data, body_starts, body_ends, counts)
    return _read_fields(data, starts, ends, headers, counts)


def iter_columns(
    buffer: Buffer,
    batches: Iterable[tuple[int, BatchHeader]] | None = None,
    *,
    max_bytes: int,
    chunk_bytes: int = _CHUNK_BYTES,
) -> Iterator[RecordColumns]:
    """The same in pieces of about `chunk_bytes`: columns that fit the caches are several times faster to make."""
    if batches is None:
        batches = ((position, header) for position, header in scan(buffer) if not header.is_control)
    piece: list[tuple[int, BatchHeader]] = []
    size = records = 0
    for position, header in batches:
        if piece and (size + header.size > chunk_bytes or records + header.record_count > _CHUNK_RECORDS):
            yield decode_columns(buffer, piece, max_bytes=max_bytes)
            piece, size, records = [], 0, 0
        piece.append((position, header))
        size += header.size
        records += header.record_count
    if piece:
        yield decode_columns(buffer, piece, max_bytes=max_bytes)


def _plain_data(
    buffer: Buffer, batches: Sequence[tuple[int, BatchHeader]], max_bytes: int
) -> tuple[Bytes, Ints, Ints]:
    """(one buffer with every plain body, where each starts, where each ends)."""
    starts = np.array([position + HEADER_BYTES for position, _ in batches], dtype=np.int64)
    ends = np.array([position + header.size for position, header in batches], dtype=np.int64)
    if len(ends) and int(ends.max()) > len(buffer):
        raise CorruptBatch("a batch reaches beyond the buffer")
    if not any(header.codec for _, header in batches):
        return np.frombuffer(buffer, dtype=np.uint8), starts, ends
    view = memoryview(buffer)
    bodies: list[memoryview] = []
    left = max_bytes
    for position, header in batches:
        body = inflate(header.codec, view[position + HEADER_BYTES : position + header.size], left)
        left -= len(body)
        bodies.append(body)
    sizes = np.array([len(body) for body in bodies], dtype=np.int64)
    ends = np.cumsum(sizes)
    return np.frombuffer(b"".join(bodies), dtype=np.uint8), ends - sizes, ends


# ---- what is in them


def _read_fields(data: Bytes, starts: Ints, ends: Ints, headers: Ints, counts: Ints) -> RecordColumns:
    _, cursor = gather_varints(data, starts, 5)
    timestamp_deltas, cursor = _signed(data, cursor + 1, 10)  # behind the length and the attributes
    offset_deltas, cursor = _signed(data, cursor, 5)
    key_lengths, key_starts = _signed(data, cursor, 5)
    key_ends = key_starts + np.maximum(key_lengths, 0)
    value_lengths, value_starts = _signed(data, key_ends, 5)
    value_ends = value_starts + np.maximum(value_lengths, 0)
    header_counts, header_starts = _signed(data, value_ends, 5)
    left = ends - header_starts
    # Nothing before this check reads outside of `data`; it also makes up for gather_varints not checking ends.
    if (
        (left < 0).any()
        or (key_lengths < -1).any()
        or (value_lengths < -1).any()
        or (header_counts < 0).any()
        or (header_counts * 2 > left).any()
        or ((header_counts == 0) & (left != 0)).any()
    ):
        raise CorruptBatch("the fields of a record do not fit into it")
    offsets = np.repeat(headers[:, 0], counts) + offset_deltas
    _check_offsets(offset_deltas, headers[:, 6], counts)
    append_time = headers[:, 5] >> 3 & 1
    timestamps = np.repeat(headers[:, 7], counts) + timestamp_deltas
    types = np.repeat(append_time.astype(np.int8), counts)
    if append_time.any():
        timestamps = np.where(types == 1, np.repeat(headers[:, 8], counts), timestamps)
    return RecordColumns(
        data, offsets, timestamps, types,
        key_starts, key_ends, key_lengths < 0, value_starts, value_ends, value_lengths < 0,
        header_starts, header_counts, ends,
    )  # fmt: skip


def _check_offsets(offset_deltas: Ints, last_deltas: Ints, counts: Ints) -> None:
    """Within a batch offsets rise strictly, from 0 to the batch's last."""
    if not offset_deltas.size:
        return
    last_of_batch = np.cumsum(counts) - 1
    first_of_batch = last_of_batch - counts + 1
    rising = np.empty(offset_deltas.size, dtype=np.bool_)
    rising[1:] = offset_deltas[1:] > offset_deltas[:-1]
    rising[first_of_batch] = offset_deltas[first_of_batch] >= 0
    if not rising.all() or (offset_deltas[last_of_batch] > last_deltas).any():
        raise CorruptBatch("offset deltas that do not rise or leave their batch")


def _signed(data: Bytes, positions: Ints, max_bytes: int) -> tuple[Ints, Ints]:
    """Zig-zag varints at `positions`, and the positions behind them."""
    bits, following = gather_varints(data, positions, max_bytes)
    halves = bits >> 1 if max_bytes < 10 else (bits.view(np.uint64) >> np.uint64(1)).view(np.int64)
    return halves ^ -(bits & 1), following


def header_columns(columns: RecordColumns) -> HeaderColumns:
    """Every header of every record; header by header in lock step over the records that still have one."""
    counts = columns.header_counts
    list_offsets = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=list_offsets[1:])
    total = int(list_offsets[-1])
    key_starts, key_ends, value_starts, value_ends = (np.empty(total, dtype=np.int64) for _ in range(4))
    value_nulls = np.empty(total, dtype=np.bool_)
    live = np.flatnonzero(counts)
    cursor = columns.header_starts.copy()
    step = 0
    while live.size:
        target = list_offsets[live] + step
        ends = columns.record_ends[live]
        key_lengths, starts = _signed(columns.data, cursor[live], 5)
        key_starts[target], key_ends[target] = starts, starts + key_lengths
        value_lengths, values = _signed(columns.data, starts + np.maximum(key_lengths, 0), 5)
        following = values + np.maximum(value_lengths, 0)
        if (key_lengths < 0).any() or (value_lengths < -1).any() or (following > ends).any():
            raise CorruptBatch("a header that does not fit into its record")
        value_starts[target], value_ends[target], value_nulls[target] = values, following, value_lengths < 0
        cursor[live] = following
        step += 1
        live = live[counts[live] > step]
    if (cursor != columns.record_ends).any():
        raise CorruptBatch("the headers of a record do not end where the record does")
    return HeaderColumns(list_offsets, key_starts, key_ends, value_starts, value_ends, value_nulls)
