"""Machine: reading a log: by offset for fetches, by timestamp for ListOffsets.

Invariant: what comes out are whole batches that passed their CRC and fit their surroundings (S1, S2), in order, from
the batch that holds the wanted offset on, none of them reaching `upto`. What is lent instead of read has passed its CRC
earlier: when it was written, or at the first read after the log was opened (decision 0050).
"""

from __future__ import annotations

from headrace.core.limits import KIB
from headrace.core.ports import Buffer
from headrace.core.stored import Stored
from headrace.log.epochs import LeaderEpochs
from headrace.log.lookup import find_max_timestamp, find_timestamp
from headrace.log.results import FoundOffset
from headrace.log.segment import BatchPlace, Segment
from headrace.log.segment_cache import SegmentCache
from headrace.log.segments import SegmentList
from headrace.records.batch import HEADER_BYTES, CorruptBatch, read_header, scan

_MAX_CURSORS = 32

LENT_BYTES = 256 * KIB
"""What is smaller is read: the system sends a file in pieces of 64 KB, each of which may wake the client (docs/performance.md; chosen, not measured)."""


class LogReader:
    __slots__ = ("_cache", "_cursors", "_epochs", "_segments", "generation")

    def __init__(self, segments: SegmentList, cache: SegmentCache, epochs: LeaderEpochs) -> None:
        self._segments = segments
        self._cache = cache
        self._epochs = epochs
        self._cursors: dict[int, tuple[Segment, int]] = {}
        """Offset -> where its batch lies in a closed segment: a sequential reader comes back for exactly this offset."""
        self.generation = 0
        """Rises when offsets may hold something else than before: the log was cut, or compacted."""

    def forget(self, *, only_removed: bool = False) -> None:
        """Segments were cut, replaced or (`only_removed`) dropped at the start."""
        self._cursors.clear()
        self.generation += not only_removed

    def read(self, offset: int, max_bytes: int, upto: int, interval: int) -> Buffer:
        segment, place = self._find(offset, interval)
        return self._read(segment, place, offset, max_bytes, upto, interval)

    def read_or_lend(self, offset: int, max_bytes: int, upto: int, interval: int) -> Buffer | Stored:
        """As `read`, or where the same bytes lie."""
        segment, place = self._find(offset, interval)
        if max_bytes >= LENT_BYTES and segment.size - place.position >= LENT_BYTES:
            lent = self._lend(segment, place, offset, max_bytes, upto, interval)
            if lent is not None:
                return lent
        return self._read(segment, place, offset, max_bytes, upto, interval)

    def _find(self, offset: int, interval: int) -> tuple[Segment, BatchPlace]:
        cursor = self._cursors.get(offset)
        if cursor is not None:
            return cursor[0], BatchPlace(cursor[1], offset, True)
        segment = self._segments[self._segments.position_of(offset)]
        return segment, segment.place_of(offset, self._cache.index(segment, interval))

    def _lend(
        self, segment: Segment, place: BatchPlace, offset: int, max_bytes: int, upto: int, interval: int
    ) -> Stored | None:
        """From the batch at `place` to a boundary that the index knows. None when that takes a closer look: where exactly the
        batch is, whether all was checked (S1), and whatever `read` would complain about."""
        position = place.position
        if not place.exact and place.base_offset != offset:
            return None
        file = self._cache.file(segment)
        descriptor = file.descriptor()
        if descriptor is None:
            return None
        try:
            header = read_header(file.read(position, HEADER_BYTES))
        except CorruptBatch:
            return None
        if not header.base_offset <= offset < header.next_offset <= upto:
            return None
        if header.leader_epoch != self._epochs.epoch_at(header.base_offset):
            return None
        limit = position + max(max_bytes, header.size)  # KIP-74: the first one in any case
        found = segment.boundary(limit, upto, self._cache.index(segment, interval))
        if found is None:
            return None
        end, next_offset = found
        if end < position + max(LENT_BYTES, header.size) or not segment.is_checked(position, end):
            return None
        segment.lent_to = max(segment.lent_to, end)
        return Stored(descriptor, position, end - position, next_offset)

    def _read(
        self, segment: Segment, place: BatchPlace, offset: int, max_bytes: int, upto: int, interval: int
    ) -> Buffer:
        segments, cache = self._segments, self._cache
        while True:
            file = cache.file(segment)
            result = segment.read(file, place, offset, max_bytes, upto, interval, self._epochs)
            if result.data:
                if result.next_offset < segment.next_offset and segment is not segments.active:
                    self._remember(result.next_offset, segment, result.next_position)
                return result.data
            # Nothing here: a gap that compaction left at the end of a segment, or `upto` is near.
            number = segments.position_of(segment.base_offset) + 1
            if number >= len(segments) or segments[number].base_offset >= upto:
                return b""
            segment = segments[number]
            place = segment.place_of(segment.base_offset, cache.index(segment, interval))

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        cursors = self._cursors
        if len(cursors) >= _MAX_CURSORS:
            del cursors[next(iter(cursors))]
        cursors[offset] = (segment, position)

    def first_at_time(self, timestamp: int, start: int, upto: int, interval: int) -> FoundOffset | None:
        return find_timestamp(self._segments, self._cache, interval, timestamp, start, upto)

    def latest_in_time(self, start: int, upto: int, interval: int) -> FoundOffset | None:
        return find_max_timestamp(self._segments, self._cache, interval, start, upto)

    def verify(self, offset: int, max_bytes: int, upto: int, interval: int) -> int:
        """S22, the scrub: read and check about `max_bytes` from `offset` on. Returns where to go on."""
        end = upto
        for _, header in scan(self.read(offset, max_bytes, upto, interval)):
            end = header.next_offset
        return end
