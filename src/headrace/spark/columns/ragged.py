"""Codec: numpy arithmetic on columns of unequal byte strings: varints in and out, and interleaving.

A ragged column is Arrow's binary layout: `data` with every element after another, `offsets` with n+1 boundaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.records.batch import CorruptBatch

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


class Ragged(NamedTuple):
    data: Bytes
    offsets: Ints

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def contiguous(self) -> Bytes:
        """Only the bytes between the first and the last boundary: Arrow slices keep the whole buffer."""
        return self.data[self.offsets[0] : self.offsets[-1]]


def gather_varints(data: Bytes, positions: Ints, max_bytes: int) -> tuple[Ints, Ints]:
    """The raw bits of the varint at each position, and the position behind it.

    Positions beyond the data read its last byte instead of failing, so the caller must hold what it arrives at against
    where it may arrive: cursors only ever move forward, so one check of the last one covers all before it.
    """
    first = data.take(positions, mode="clip")
    more = first > 0x7F
    if not more.any():
        return first.astype(np.int64), positions + 1
    second = data[1:].take(positions, mode="clip")
    # Without a branch: the continuation bit of the first byte is worth 128, which is what the second one counts in.
    # 16 bits hold it: the narrower the numbers, the more of them numpy handles at once.
    low = second.astype(np.uint16)
    low -= 1
    low <<= 7
    low *= more
    low += first
    values = low.astype(np.int64)
    following = positions + 1
    following += more
    more &= second > 0x7F
    if more.any():
        _gather_long(data, values, following, np.flatnonzero(more), max_bytes)
    return values, following


def _gather_long(data: Bytes, values: Ints, following: Ints, long: Ints, max_bytes: int) -> None:
    """The third byte and on, for the few that have one."""
    for index in range(2, max_bytes):
        byte = data.take(following[long], mode="clip").astype(np.int64)
        # The last byte has room for 4 bits out of 32, or for 1 out of 64.
        if index == max_bytes - 1 and (byte > (0x0F if max_bytes == 5 else 0x01)).any():
            raise CorruptBatch("a varint of more than its bits")
        values[long] += byte - 1 << 7 * index
        following[long] += 1
        long = long[byte > 0x7F]
        if not long.size:
            return


def zigzag(values: Ints) -> Words:
    return (values << 1 ^ values >> 63).view(np.uint64)


def varint_widths(encoded: Words) -> Ints:
    """How many bytes each value takes."""
    widths = np.ones(encoded.size, dtype=np.int64)
    limit = 0x80
    highest = int(encoded.max()) if encoded.size else 0
    while limit <= highest:
        widths += encoded >= np.uint64(limit)
        limit <<= 7
    return widths


def pack_varints(columns: Sequence[Words]) -> Ragged:
    """Element i is varint(columns[0][i]) + varint(columns[1][i]) + ...

    Every varint gets the room of its column's widest, then one boolean pick drops the unused bytes: picking from a
    matrix goes row by row, which is just the order wanted.
    """
    count = columns[0].size
    widths = [varint_widths(column) for column in columns]
    rooms = [int(width.max()) if count else 0 for width in widths]
    matrix = np.empty((count, sum(rooms)), dtype=np.uint8)
    used = np.empty(matrix.shape, dtype=np.bool_)
    place = 0
    for column, width, room in zip(columns, widths, rooms, strict=True):
        for index in range(room):
            low = (column >> np.uint64(7 * index)).astype(np.uint8) & 0x7F
            matrix[:, place] = low | (width > index + 1).astype(np.uint8) << 7
            used[:, place] = width > index
            place += 1
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(sum(widths), out=offsets[1:])
    return Ragged(matrix[used], offsets)


def interleave(columns: Sequence[Ragged]) -> Ragged:
    """Element i is columns[0][i] + columns[1][i] + ..., for columns of equal count."""
    count = columns[0].offsets.size - 1
    boundaries = np.zeros((count + 1, len(columns)), dtype=np.int64)
    lengths = np.stack([column.lengths for column in columns], axis=1)
    # Row i holds where each piece of element i ends; flat, that is one rising line of piece boundaries.
    ends = np.cumsum(lengths.ravel()).reshape(count, len(columns)) if count else boundaries[1:]
    total = int(ends[-1, -1]) if count else 0
    output = np.empty(total, dtype=np.uint8)
    for index, column in enumerate(columns):
        _place(output, column.contiguous(), ends[:, index], lengths[:, index])
    offsets = boundaries[:, 0]
    offsets[1:] = ends[:, -1]
    return Ragged(output, np.ascontiguousarray(offsets))


_DENSE = 6
"""A column with more than a sixth of the bytes is copied run by run through a mask, a thinner one byte by byte by index."""


def _place(output: Bytes, data: Bytes, ends: Ints, lengths: Ints) -> None:
    """Copy element i of the column to output[ends[i] - lengths[i] : ends[i]]."""
    if not data.size:
        return
    if data.size * _DENSE > output.size:
        runs = np.empty(2 * ends.size + 1, dtype=np.int64)  # gap, element, gap, element, ..., gap
        runs[1::2] = lengths
        runs[0] = ends[0] - lengths[0]
        runs[2:-1:2] = np.diff(ends) - lengths[1:]
        runs[-1] = output.size - ends[-1]
        mask = np.zeros(runs.size, dtype=np.bool_)
        mask[1::2] = True
        output[np.repeat(mask, runs)] = data
    else:
        shift = ends - np.cumsum(lengths)
        output[np.repeat(shift, lengths) + np.arange(data.size)] = data
