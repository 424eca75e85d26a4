"""Machine: one segment of a log: a file of batches, its sparse index, and where its latest batches lie.

The active segment has its file, index and the ring of recent batches in memory; the append path therefore touches one
file. A closed segment is a handful of numbers; its file and index come from the SegmentCache when somebody reads it.

Invariant: `size`, `next_offset`, `max_timestamp` and the index describe exactly the batches that were noted.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from headrace.core.ports import Buffer, File
from headrace.log.epochs import LeaderEpochs
from headrace.log.extents import Extents
from headrace.log.index import NO_TIMESTAMP, SegmentSummary, SparseIndex
from headrace.log.results import LogCorrupt
from headrace.log.scanning import BadBatch, select_batches
from headrace.records.batch import (
    CRC,
    LAST_OFFSET_DELTA,
    LENGTH,
    LENGTH_PREFIX_BYTES,
    MAX_TIMESTAMP,
    BatchHeader,
)

RECENT_BATCHES = 256
"""Tail reads, and reads that end at a high watermark inside the active segment, find their place here."""


class BatchPlace(NamedTuple):
    """A batch boundary: its position in the file and the base offset of the batch that starts there."""

    position: int
    base_offset: int
    exact: bool
    """It is the batch that was asked for, not merely one in front of it."""


class ReadResult(NamedTuple):
    data: Buffer
    next_offset: int
    """Offset and position right after the data, where a sequential reader goes on."""
    next_position: int


class Segment:
    __slots__ = (
        "appended_ms",
        "base_offset",
        "checked",
        "created_ms",
        "dense",
        "file",
        "index",
        "indexed_position",
        "last_base_offset",
        "last_crc",
        "last_position",
        "lent_to",
        "max_timestamp",
        "next_offset",
        "opened_size",
        "path",
        "recent_offsets",
        "recent_positions",
        "size",
    )

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.created_ms = 0
        self.appended_ms = 0
        self.last_position = -1
        self.last_base_offset = -1
        self.last_crc = 0
        self.dense = True
        self.file: File | None = None
        """Held from the first write until the sync that covers the last (S8)."""
        self.index: SparseIndex | None = SparseIndex()
        self.indexed_position = -1
        self.recent_offsets = array("q")
        self.recent_positions = array("q")
        self.opened_size = 0
        """What lies in front of this was there when the log was opened and has not been looked at since, except where `checked` says so.
        All behind it was written, or scanned, in this life (S1)."""
        self.checked = Extents()
        self.lent_to = 0
        """No byte behind this position of the file was ever lent (decision 0050)."""

    # ---- growing

    def note(self, header: BatchHeader, base_offset: int, interval: int) -> None:
        """A batch was written at the end of the file. `header` counts for everything but its base offset."""
        position = self.size
        size = header[LENGTH] + LENGTH_PREFIX_BYTES
        index = self.index
        if index is not None and (position - self.indexed_position >= interval or self.indexed_position < 0):
            index.add(base_offset - self.base_offset, position, self.max_timestamp)
            self.indexed_position = position
        if base_offset != self.next_offset:
            self.dense = False
        self.recent_offsets.append(base_offset)
        self.recent_positions.append(position)
        if len(self.recent_offsets) >= 2 * RECENT_BATCHES:
            del self.recent_offsets[:RECENT_BATCHES], self.recent_positions[:RECENT_BATCHES]
        if header[MAX_TIMESTAMP] > self.max_timestamp:
            self.max_timestamp = header[MAX_TIMESTAMP]
        self.last_position = position
        self.last_base_offset = base_offset
        self.last_crc = header[CRC]
        self.next_offset = base_offset + header[LAST_OFFSET_DELTA] + 1
        self.size = position + size

    # ---- as a value

    def summary(self) -> SegmentSummary:
        return SegmentSummary(
            self.base_offset,
            self.next_offset,
            self.size,
            self.max_timestamp,
            self.created_ms,
            self.appended_ms,
            self.last_position,
            self.last_base_offset,
            self.last_crc,
            self.dense,
        )

    def restore(self, summary: SegmentSummary) -> None:
        """Take the numbers from an index file; the index itself is loaded when it is needed."""
        self.next_offset = summary.next_offset
        self.size = summary.size
        self.max_timestamp = summary.max_timestamp
        self.created_ms = summary.created_ms
        self.appended_ms = summary.appended_ms
        self.last_position = summary.last_position
        self.last_base_offset = summary.last_base_offset
        self.last_crc = summary.last_crc
        self.dense = summary.dense
        self.index = None
        self.opened_size = summary.size

    def forget_recent(self) -> None:
        del self.recent_offsets[:], self.recent_positions[:]

    # ---- finding

    def place_of(self, offset: int, index: SparseIndex) -> BatchPlace:
        """The batch that holds `offset`, or the nearest known one in front of it."""
        recent = self.recent_offsets
        if recent and offset >= recent[0]:
            found = bisect_right(recent, offset) - 1
            return BatchPlace(self.recent_positions[found], recent[found], True)
        if not len(index):
            return BatchPlace(0, self.base_offset, False)
        relative, position = index.before(offset - self.base_offset)
        return BatchPlace(position, self.base_offset + relative, False)

    def stop_position(self, upto: int) -> int:
        """No batch that ends at or below `upto` reaches beyond this position."""
        recent = self.recent_offsets
        if upto < self.next_offset and recent and upto > recent[0]:
            found = bisect_left(recent, upto)
            if found < len(recent):
                return self.recent_positions[found]
        return self.size

    def boundary(self, limit: int, upto: int, index: SparseIndex) -> tuple[int, int] | None:
        """The last known batch boundary at or before position `limit`, and its offset, which is at most `upto`."""
        if limit >= self.size and upto >= self.next_offset:
            return self.size, self.next_offset
        offsets, positions, base = self.recent_offsets, self.recent_positions, 0
        if not offsets or positions[0] > limit or offsets[0] > upto:
            offsets, positions, base = index.offsets, index.positions, self.base_offset
        found = min(bisect_right(positions, limit), bisect_right(offsets, upto - base)) - 1
        return None if found < 0 else (positions[found], base + offsets[found])

    def is_checked(self, begin: int, end: int) -> bool:
        """S1: every batch in there has passed its CRC since the log was opened, or was written since."""
        return begin >= self.opened_size or self.checked.covers(begin, min(end, self.opened_size))

    # ---- reading

    def read(
        self,
        file: File,
        place: BatchPlace,
        offset: int,
        max_bytes: int,
        upto: int,
        interval: int,
        epochs: LeaderEpochs,
    ) -> ReadResult:
        """Whole, checked batches from the one that holds `offset` on; empty when all of them are at or above `upto`."""
        position, expected, exact = place
        stop = self.stop_position(upto)
        wanted = max_bytes if exact else max_bytes + interval
        # An entry in a compacted segment is a batch of its own, so the offsets in front of it are no concern.
        while position < stop:
            data = file.read(position, min(max(wanted, 0), stop - position))
            try:
                found = select_batches(data, expected, offset, max_bytes, upto, self.dense, epochs)
            except BadBatch as error:
                raise LogCorrupt(self.path, position + error.position, error.offset, error.detail) from None
            if not found.missing:
                end = found.end
                whole = found.begin == 0 and end == len(data)
                selected: Buffer = data if whole else memoryview(data)[found.begin : end]
                if position + found.begin < self.opened_size and found.begin < end:
                    self.checked.add(position + found.begin, position + end)
                return ReadResult(selected, found.next_offset, position + end)
            position, expected = position + found.begin, found.next_offset
            if position + found.missing > stop:
                if position == stop:
                    break
                raise LogCorrupt(
                    self.path, position, expected, "a batch reaches beyond the end of the segment"
                )
            wanted = max(max_bytes, found.missing)
        return ReadResult(b"", self.next_offset, position)
