"""Codec: columns into record batches, the other direction of columns.py: numpy only, no Python object per record.

For sinks that hold Arrow or numpy columns. A column of byte strings is a Ragged (Arrow's binary layout) plus an optional
mask of nulls; a null has length zero. Batches are cut so that none is larger than asked, before compression.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.records.batch import (
    HEADER_BYTES,
    MAGIC_V2,
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from headrace.records.build import assemble
from headrace.records.compression import compress
from headrace.spark.columns.ragged import Ints, Ragged, interleave, pack_varints, varint_widths, zigzag

Weave = Callable[[Sequence[Ragged]], Ragged]
"""Joins columns row by row. numpy's own way is the default; who has Arrow brings a faster one."""

_FIELDS_AT_MOST = 32
"""Bytes of a record that are neither key, value nor headers: length 5, attributes 1, timestamp 10, offset 5, two lengths
of 5 each, and the header count when there are no headers."""


class BytesColumn(NamedTuple):
    values: Ragged
    nulls: npt.NDArray[np.bool_] | None = None

    def encoded_lengths(self) -> npt.NDArray[np.uint64]:
        lengths = self.values.lengths
        if self.nulls is not None:
            lengths = np.where(self.nulls, -1, lengths)
        return zigzag(lengths)


class ProducerStamp(NamedTuple):
    """Who writes: an idempotent or transactional producer, or nobody in particular."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    next_sequence: int = NO_SEQUENCE
    transactional: bool = False


def encode_batches(
    keys: BytesColumn | None,
    values: BytesColumn,
    timestamps: Ints,
    headers: Ragged | None = None,
    *,
    max_batch_bytes: int,
    codec: int = 0,
    producer: ProducerStamp = ProducerStamp(),  # noqa: B008 - immutable
    weave: Weave = interleave,
) -> Iterator[bytearray]:
    """The records as batches with base offset 0, ready to be produced one after another.

    `headers` is what `encode_headers` makes. A record too large for `max_batch_bytes` gets a batch of its own.
    """
    sequence = producer.next_sequence
    attributes = codec | (TRANSACTIONAL_BIT if producer.transactional else 0)
    cuts = _cuts(keys, values, headers, max_batch_bytes)
    counts = np.diff(cuts)
    # All batches are encoded in one go and cut afterwards: numpy's cost is per call.
    body = encode_body(
        keys,
        values,
        timestamps - np.repeat(timestamps[cuts[:-1]], counts),
        np.arange(timestamps.size) - np.repeat(cuts[:-1], counts),
        headers,
        weave,
    )
    for start, stop in itertools.pairwise(cuts.tolist()):
        times = timestamps[start:stop]
        plain = body.data[body.offsets[start] : body.offsets[stop]].data
        header = BatchHeader(
            0, 0, -1, MAGIC_V2, 0, attributes, stop - start - 1, int(times[0]), int(times.max()),
            producer.producer_id, producer.producer_epoch, sequence, stop - start,
        )  # fmt: skip
        yield assemble(header, compress(codec, plain) if codec else plain)
        if sequence >= 0:
            sequence = (sequence + stop - start) & MAX_SEQUENCE


def encode_body(
    keys: BytesColumn | None,
    values: BytesColumn,
    timestamp_deltas: Ints,
    offset_deltas: Ints,
    headers: Ragged | None = None,
    weave: Weave = interleave,
) -> Ragged:
    """Element i is record i with its length; the plain body of a batch is a run of them."""
    count = timestamp_deltas.size
    key_lengths = (
        np.ones(count, dtype=np.uint64) if keys is None else keys.encoded_lengths()
    )  # 1 is -1 in zig-zag
    value_lengths = values.encoded_lengths()
    timestamps, offsets = zigzag(timestamp_deltas), zigzag(offset_deltas)
    attributes = np.zeros(count, dtype=np.uint64)
    sizes = 1 + values.values.lengths + (1 if headers is None else headers.lengths)
    if keys is not None:
        sizes = sizes + keys.values.lengths
    for column in (timestamps, offsets, key_lengths, value_lengths):
        sizes = sizes + varint_widths(column)
    front = [zigzag(sizes), attributes, timestamps, offsets, key_lengths]
    if keys is None or keys.values.offsets[0] == keys.values.offsets[-1]:
        pieces = [pack_varints([*front, value_lengths]), values.values]
    else:
        pieces = [pack_varints(front), keys.values, pack_varints([value_lengths]), values.values]
    pieces.append(
        Ragged(np.zeros(count, dtype=np.uint8), np.arange(count + 1)) if headers is None else headers
    )
    return weave(pieces)


def encode_headers(list_offsets: Ints, keys: BytesColumn, values: BytesColumn) -> Ragged:
    """The header section of every record: its count, then its headers (Arrow's list<struct<key, value>> layout)."""
    entries = interleave(
        [
            pack_varints([keys.encoded_lengths()]),
            keys.values,
            pack_varints([values.encoded_lengths()]),
            values.values,
        ]
    )
    sections = Ragged(entries.data, entries.offsets[list_offsets - list_offsets[0]])
    return interleave([pack_varints([zigzag(np.diff(list_offsets))]), sections])


def _cuts(
    keys: BytesColumn | None, values: BytesColumn, headers: Ragged | None, max_batch_bytes: int
) -> Ints:
    """Where batches begin, and the end: runs of records that fit, judged by the most their fields can take."""
    count = values.values.offsets.size - 1
    room = max_batch_bytes - HEADER_BYTES
    ends = values.values.offsets[1:] - values.values.offsets[0] + _FIELDS_AT_MOST * np.arange(1, count + 1)
    if keys is not None:
        ends = ends + (keys.values.offsets[1:] - keys.values.offsets[0])
    if headers is not None:
        ends = ends + (headers.offsets[1:] - headers.offsets[0])
    cuts = [0]
    while cuts[-1] < count:
        before = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
        cuts.append(max(int(np.searchsorted(ends, before + room, side="right")), cuts[-1] + 1))
    return np.array(cuts, dtype=np.int64)
