"""Machine: reading a log: by offset for fetches, by timestamp for ListOffsets.

Invariant: what comes out are whole batches that passed their CRC and fit their surroundings (S1, S2), in order, from
the batch that holds the wanted offset on, none of them reaching `upto`.
"""

from __future__ import annotations

from headrace.core.ports import Buffer
from headrace.log.epochs import LeaderEpochs
from headrace.log.lookup import find_max_timestamp, find_timestamp
from headrace.log.results import FoundOffset
from headrace.log.segment import Place, Segment
from headrace.log.segment_cache import SegmentCache
from headrace.log.segments import SegmentList
from headrace.records.batch import scan

_MAX_CURSORS = 32


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
        segments, cache = self._segments, self._cache
        cursor = self._cursors.get(offset)
        if cursor is not None:
            segment, place = cursor[0], Place(cursor[1], offset, True)
        else:
            segment = segments[segments.position_of(offset)]
            place = segment.place_of(offset, cache.index(segment, interval))
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
