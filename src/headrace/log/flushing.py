"""Machine: what is written but not yet synced, and the one flush that may be under way.

Invariant: `durable_end` never passes a batch whose file was not synced after the batch was written, also when
the segment was rolled or the log truncated in the meantime.
"""

from __future__ import annotations

from headrace.core.ports import File
from headrace.log.results import Flush
from headrace.log.segment import Segment
from headrace.log.segment_cache import SegmentCache


class FlushQueue:
    __slots__ = (
        "_cache",
        "_close_later",
        "_flushing",
        "_generation",
        "_segments",
        "_unsynced",
        "durable_end",
    )

    def __init__(self, cache: SegmentCache, durable_end: int) -> None:
        self._cache = cache
        self.durable_end = durable_end
        self._unsynced: list[Segment] = []
        """Rolled since the last flush began; oldest first."""
        self._flushing: Flush | None = None
        self._segments: list[Segment] = []
        """Rolled segments that the flush under way covers."""
        self._close_later: list[File] = []
        self._generation = 0

    def rolled(self, segment: Segment) -> None:
        self._unsynced.append(segment)

    def begin(self, active: Segment, end_offset: int) -> Flush | None:
        if self._flushing is not None or self.durable_end >= end_offset:
            return None
        self._segments, self._unsynced = self._unsynced, []
        files: list[File] = []
        if self._segments:
            files += [segment.file for segment in self._segments if segment.file is not None]
        if active.size and active.file is not None:
            files.append(active.file)
        self._flushing = Flush(tuple(files), end_offset, self._generation)
        return self._flushing

    def end(self, flush: Flush, synced: bool) -> None:
        assert flush is self._flushing, "one flush at a time"
        self._flushing = None
        for segment in self._segments:
            self._hand_to_readers(segment)
        self._segments = []
        for file in self._close_later:
            file.close()
        self._close_later = []
        if synced and flush.generation == self._generation:
            self.durable_end = max(self.durable_end, flush.end_offset)

    def truncated(self, end_offset: int) -> None:
        """The log was cut and the cut was synced: a flush under way vouches for nothing that comes after it."""
        self._generation += 1
        self.durable_end = min(self.durable_end, end_offset)

    def restarted(self, offset: int) -> None:
        """The log begins anew and empty: there is nothing to sync, and nobody may wait for it."""
        self._generation += 1
        self.durable_end = offset

    def forget(self, segment: Segment) -> None:
        """The segment leaves the log. Its file is not closed while a sync may run on it (S8)."""
        self.reclaim(segment)
        file, segment.file = segment.file, None
        if file is not None:
            self.close_file(file)

    def reclaim(self, segment: Segment) -> None:
        """A rolled segment becomes the active one again and keeps its file."""
        self._unsynced = [other for other in self._unsynced if other is not segment]
        self._segments = [other for other in self._segments if other is not segment]

    def close_file(self, file: File) -> None:
        if self._flushing is not None and any(file is other for other in self._flushing.files):
            self._close_later.append(file)
        else:
            file.close()

    def close(self, active: Segment) -> None:
        for segment in (*self._unsynced, *self._segments, active):
            self.forget(segment)

    def _hand_to_readers(self, segment: Segment) -> None:
        """A closed segment is synced: its file serves readers from now on, through the cache."""
        if segment.file is not None:
            self._cache.adopt(segment.path, segment.file, segment.index)
            segment.file = segment.index = None
            segment.forget_recent()
