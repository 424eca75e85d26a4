"""Machine: the segments of a log in order, and what became of those that left it.

Invariant: base offsets rise strictly; the last segment is the active one; a segment that leaves is renamed `.deleted`
at once and unlinked later, so that nothing that still reads it is cut off (S20).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from headrace.core.ports import FileSystem
from headrace.log.names import DELETED, INDEX, LOG, SNAPSHOT
from headrace.log.segment import Segment
from headrace.log.segment_cache import SegmentCache


class SegmentList:
    __slots__ = ("_bases", "_cache", "_directory", "_fs", "_segments", "_trash", "closed_bytes")

    def __init__(self, fs: FileSystem, directory: str, cache: SegmentCache) -> None:
        self._fs = fs
        self._directory = directory
        self._cache = cache
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._trash: list[tuple[str, int | None]] = []
        """(path, when it was renamed on the monotonic clock; None: before this process or not known yet)"""
        self.closed_bytes = 0

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, position: int) -> Segment:
        return self._segments[position]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def closed(self) -> list[Segment]:
        return self._segments[:-1]

    def add(self, segment: Segment) -> None:
        if self._segments:
            self.closed_bytes += self._segments[-1].size
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def position_of(self, offset: int) -> int:
        """Which segment holds `offset`, or the first when it is in front of all."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def holding(self, start: int, end: int) -> list[Segment]:
        """Segments with a batch in [start, end), as far as their offsets tell."""
        found = self._segments[self.position_of(start) :]
        return [segment for segment in found if segment.base_offset < end and segment.next_offset > start]

    def retire_first(self, count: int) -> list[Segment]:
        """Take the first `count` segments out; they are older than the log's start now."""
        gone = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        self._recount()
        for segment in gone:
            self.discard(segment)
        return gone

    def retire_from(self, position: int) -> list[Segment]:
        """Take out the segment at `position` and all after it, the newest first: what a crash leaves is a prefix."""
        gone = self._segments[position:]
        del self._segments[position:], self._bases[position:]
        self._recount()
        for segment in reversed(gone):
            self.discard(segment)
        return gone

    def replace(self, position: int, count: int, segment: Segment) -> None:
        """Put one segment in the place of `count`; the files were swapped already."""
        self._segments[position : position + count] = [segment]
        self._bases[position : position + count] = [segment.base_offset]
        self._recount()

    def discard(self, segment: Segment) -> None:
        """Rename the files of a segment that is no longer in the list. Its writable file is the caller's to close."""
        self._cache.drop(segment.path)
        self._fs.rename(segment.path, segment.path + DELETED)
        self._trash.append((segment.path + DELETED, None))
        self._drop_caches(segment)

    def drop_caches(self, count: int) -> None:
        """Index and snapshot of the first `count` segments, which are about to go."""
        for segment in self._segments[:count]:
            self._drop_caches(segment)

    def _drop_caches(self, segment: Segment) -> None:
        stem = segment.path.removesuffix(LOG)
        for path in (stem + INDEX, stem + SNAPSHOT):
            if self._fs.exists(path):
                self._fs.remove(path)

    def adopt_trash(self, path: str) -> None:
        """Found at start-up, still to be unlinked."""
        self._trash.append((path, None))

    @property
    def has_trash(self) -> bool:
        return bool(self._trash)

    def purge(self, now_ms: int, delay_ms: int) -> int:
        """Unlink what was renamed at least `delay_ms` ago, counted from the first call that saw it."""
        waiting: list[tuple[str, int | None]] = []
        count = 0
        for path, since_ms in self._trash:
            if since_ms is None or now_ms - since_ms < delay_ms:
                waiting.append((path, now_ms if since_ms is None else since_ms))
                continue
            if self._fs.exists(path):
                self._fs.remove(path)
                count += 1
        self._trash = waiting
        return count

    def _recount(self) -> None:
        self.closed_bytes = sum(segment.size for segment in self._segments[:-1])
