"""Codec: where things are in one segment: a sparse table of (offset, position, highest timestamp before it).

An index is a cache (S14). In memory it is three arrays; on disk it is one file per segment, written when the segment is
closed, and made again from the log whenever it is missing, damaged or does not fit the log beside it.

    magic 8 | version u16 | entry count u32 | aborted count u32 | summary (see SegmentSummary) | crc32 of all so far
            and of the aborted transactions
    aborted transactions: producer id i64, first i64, last i64, last stable i64 each
    offsets (u32, relative) x count | positions u32 x count | timestamps i64 x count | crc32 of the three arrays

The front (up to the aborted transactions) is read when a log is opened; the arrays only when the segment is first read.
All big endian.

Invariant: entries rise strictly in offset and position and never fall in timestamp; `decode_*` return an index that
keeps this and fits `summary.size`, or raise BadIndex.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from headrace.core.ports import File
from headrace.log.aborted import AbortedTxn

NO_TIMESTAMP = -(2**63)
MAX_RELATIVE_OFFSET = 2**31 - 1
MAX_POSITION = 2**32 - 1

_MAGIC = b"hr-index"
_VERSION = 1
_FRONT = struct.Struct(">8sHII")
_SUMMARY = struct.Struct(">qqqqqqqqI?")
_ABORTED = struct.Struct(">qqqq")
_CRC = struct.Struct(">I")
_FRONT_BYTES = _FRONT.size + _SUMMARY.size + _CRC.size
ENTRY_BYTES = 4 + 4 + 8


class BadIndex(ValueError):
    """An index file that can not be used."""


class SegmentSummary(NamedTuple):
    base_offset: int
    next_offset: int
    """One past the last offset of its last batch; the base offset when it is empty."""
    size: int
    """Bytes of log the index describes."""
    max_timestamp: int
    created_ms: int
    """The broker's clock at the first and the last append: what retention clips timestamps to (S23)."""
    appended_ms: int
    last_position: int
    """Where its last batch starts (-1: none), and that batch's base offset and CRC, to tell this log from another."""
    last_base_offset: int
    last_crc: int
    dense: bool
    """No offset between the first and the last is missing."""


class SparseIndex:
    __slots__ = ("offsets", "positions", "timestamps")

    def __init__(self) -> None:
        self.offsets = array("I")
        """Relative to the segment's base."""
        self.positions = array("I")
        self.timestamps = array("q")
        """The highest timestamp of the batches in front of the entry."""

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, relative_offset: int, position: int, max_timestamp_before: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)
        self.timestamps.append(max_timestamp_before)

    def before(self, relative_offset: int) -> tuple[int, int]:
        """(relative offset, position) of the last entry at or below; the first entry when there is none below."""
        found = max(bisect_right(self.offsets, relative_offset) - 1, 0)
        return self.offsets[found], self.positions[found]

    def before_timestamp(self, timestamp: int) -> int:
        """Number of the entry from which a scan meets the first batch with a timestamp at or above."""
        return max(bisect_left(self.timestamps, timestamp) - 1, 0)

    def truncate(self, position: int) -> None:
        """Forget the entries at or after `position`."""
        keep = bisect_left(self.positions, position)
        del self.offsets[keep:], self.positions[keep:], self.timestamps[keep:]


def encode_index(summary: SegmentSummary, aborted: list[AbortedTxn], index: SparseIndex) -> list[bytes]:
    front = _FRONT.pack(_MAGIC, _VERSION, len(index), len(aborted)) + _SUMMARY.pack(*summary)
    aborted_bytes = b"".join(_ABORTED.pack(*entry) for entry in aborted)
    arrays = _swapped(index.offsets) + _swapped(index.positions) + _swapped(index.timestamps)
    return [
        front,
        _CRC.pack(zlib.crc32(aborted_bytes, zlib.crc32(front))),
        aborted_bytes,
        arrays,
        _CRC.pack(zlib.crc32(arrays)),
    ]


def read_front(file: File) -> tuple[SegmentSummary, list[AbortedTxn], int]:
    """(summary, aborted transactions, entry count) of an index file."""
    front = file.read(0, 4096)
    if len(front) < _FRONT_BYTES:
        raise BadIndex("too short")
    magic, version, entry_count, aborted_count = _FRONT.unpack_from(front)
    if magic != _MAGIC or version != _VERSION:
        raise BadIndex("not an index of this version")
    end = _FRONT_BYTES + aborted_count * _ABORTED.size
    if file.size != end + entry_count * ENTRY_BYTES + _CRC.size:
        raise BadIndex("wrong length")
    if end > len(front):
        front = file.read(0, end)
    covered = _FRONT_BYTES - _CRC.size
    crc = zlib.crc32(front[_FRONT_BYTES:end], zlib.crc32(front[:covered]))
    if _CRC.unpack_from(front, covered)[0] != crc:
        raise BadIndex("the checksum does not match")
    summary = SegmentSummary(*_SUMMARY.unpack_from(front, _FRONT.size))
    aborted = [AbortedTxn(*fields) for fields in _ABORTED.iter_unpack(front[_FRONT_BYTES:end])]
    return summary, aborted, entry_count


def read_index(file: File) -> tuple[SegmentSummary, SparseIndex]:
    summary, aborted, count = read_front(file)
    start = _FRONT_BYTES + len(aborted) * _ABORTED.size
    arrays = file.read(start, count * ENTRY_BYTES + _CRC.size)
    body = arrays[: -_CRC.size]
    if len(body) != count * ENTRY_BYTES or _CRC.unpack(arrays[-_CRC.size :])[0] != zlib.crc32(body):
        raise BadIndex("the checksum of the entries does not match")
    index = SparseIndex()
    _load(index.offsets, body[: 4 * count])
    _load(index.positions, body[4 * count : 8 * count])
    _load(index.timestamps, body[8 * count :])
    if not _is_monotone(index) or (count and index.positions[-1] >= summary.size):
        raise BadIndex("entries out of order")
    return summary, index


def _is_monotone(index: SparseIndex) -> bool:
    offsets, positions, timestamps = index.offsets, index.positions, index.timestamps
    return all(
        offsets[i] < offsets[i + 1] and positions[i] < positions[i + 1] and timestamps[i] <= timestamps[i + 1]
        for i in range(len(offsets) - 1)
    )


def _swapped(values: array[int]) -> bytes:
    if sys.byteorder == "big":
        return values.tobytes()
    copy = values[:]
    copy.byteswap()
    return copy.tobytes()


def _load(values: array[int], data: bytes) -> None:
    values.frombytes(data)
    if sys.byteorder == "little":
        values.byteswap()
