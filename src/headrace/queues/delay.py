"""Machine: a timetable of offsets, for messages that are not due yet and for messages that will expire.

A million pending entries have to cost little and none may be lost in the crowd, so there are two structures of plain
numbers and no object per message:
- columns (offset, time, lane) in offset order, in chunks: 20 bytes per entry. They are the truth: lookup, listing,
  moving and cancelling go through them.
- a heap of integers `time << 63 | offset`: 48 bytes per entry. It only finds what is next; an entry that the columns
  do not confirm was moved or removed and is skipped.

Offsets are added in ascending order, because the log is read in that order. Times are wall clock, to the millisecond
and without an upper limit (Q7).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

_CHUNK_ENTRIES = 2048
_OFFSET_BITS = 63
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_GONE = -1
_STALE_SLACK = 1024
LAST_MS = (1 << 62) - 1
"""Times are cut to this, so that they fit their column: 146 million years."""


class _Chunk:
    __slots__ = ("lanes", "live", "offsets", "thin", "times")

    def __init__(self, number: int) -> None:
        # How thinned out it may be before it is squeezed. Chunks differ, because what was sent together is often due
        # together, and then all of them would be squeezed in the same moment.
        self.thin = 4 + number % 8
        self.offsets: array[int] = array("q")
        self.times: array[int] = array("q")
        self.lanes: array[int] = array("i")
        self.live = 0

    def squeeze(self) -> None:
        keep = [at for at, time in enumerate(self.times) if time != _GONE]
        self.offsets = array("q", [self.offsets[at] for at in keep])
        self.lanes = array("i", [self.lanes[at] for at in keep])
        self.times = array("q", [self.times[at] for at in keep])


class Entry(NamedTuple):
    offset: int
    lane: int


class Timetable:
    __slots__ = ("_bases", "_chunks", "_heap", "_made", "count")

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._bases: list[int] = []
        """At or below the first offset of each chunk, so that one bisect finds the chunk."""
        self._heap: list[int] = []
        self._made = 0
        self.count = 0

    def __contains__(self, offset: int) -> bool:
        return self._find(offset) is not None

    def add(self, offset: int, time_ms: int, lane: int) -> None:
        if not self._chunks or len(self._chunks[-1].offsets) >= _CHUNK_ENTRIES:
            self._made += 1
            self._chunks.append(_Chunk(self._made))
            self._bases.append(offset)
        chunk = self._chunks[-1]
        assert not chunk.offsets or offset > chunk.offsets[-1], "the log is read in order"
        time_ms = min(time_ms, LAST_MS)
        chunk.offsets.append(offset)
        chunk.times.append(time_ms)
        chunk.lanes.append(lane)
        chunk.live += 1
        self.count += 1
        heappush(self._heap, time_ms << _OFFSET_BITS | offset)

    def time_of(self, offset: int) -> int | None:
        found = self._find(offset)
        return None if found is None else found[0].times[found[1]]

    def lane_of(self, offset: int) -> int | None:
        found = self._find(offset)
        return None if found is None else found[0].lanes[found[1]]

    def head_ms(self) -> int | None:
        return self._heap[0] >> _OFFSET_BITS if self._heap else None

    def move(self, offset: int, time_ms: int) -> None:
        found = self._find(offset)
        if found is None:
            return
        time_ms = min(time_ms, LAST_MS)
        found[0].times[found[1]] = time_ms
        heappush(self._heap, time_ms << _OFFSET_BITS | offset)
        self._tidy()

    def remove(self, offset: int) -> int | None:
        """The lane of what was removed, or None."""
        found = self._find(offset)
        if found is None:
            return None
        lane = self._take(*found)
        self._tidy()
        return lane

    def pop_due(self, wall_ms: int, limit: int) -> list[Entry]:
        """The earliest entries at or before `wall_ms`, removed."""
        popped: list[Entry] = []
        heap = self._heap
        while heap and heap[0] >> _OFFSET_BITS <= wall_ms and len(popped) < limit:
            key = heappop(heap)
            offset = key & _OFFSET_MASK
            found = self._find(offset)
            if found is not None and found[0].times[found[1]] == key >> _OFFSET_BITS:
                popped.append(Entry(offset, self._take(*found)))
        self._tidy()
        return popped

    def due(self, wall_ms: int, limit: int) -> list[int]:
        """Some `limit` of the offsets at or before `wall_ms`; changes nothing.

        A heap's due entries are a tree at its root, so they are walked without sorting or popping anything.
        """
        bound = wall_ms << _OFFSET_BITS | _OFFSET_MASK
        heap = self._heap
        found: dict[int, None] = {}  # moved away and back again, an entry is in the heap twice
        walk = [0]
        while walk and len(found) < limit:
            at = walk.pop()
            if at >= len(heap) or heap[at] > bound:
                continue
            offset = heap[at] & _OFFSET_MASK
            if self.time_of(offset) == heap[at] >> _OFFSET_BITS:
                found[offset] = None
            walk += (2 * at + 1, 2 * at + 2)
        return list(found)

    def quiet(self, wall_ms: int, passed: Container[int]) -> None:
        """Raise no more alarm for entries of `passed` that are due; they stay in the columns."""
        heap = self._heap
        while heap and heap[0] >> _OFFSET_BITS <= wall_ms and heap[0] & _OFFSET_MASK in passed:
            heappop(heap)
        self._tidy()

    def items(self, from_offset: int, limit: int) -> list[tuple[int, int]]:
        """(offset, time) in offset order."""
        listed: list[tuple[int, int]] = []
        at = max(bisect_right(self._bases, from_offset) - 1, 0)
        while at < len(self._chunks) and len(listed) < limit:
            chunk = self._chunks[at]
            for index in range(bisect_left(chunk.offsets, from_offset), len(chunk.offsets)):
                if chunk.times[index] != _GONE and len(listed) < limit:
                    listed.append((chunk.offsets[index], chunk.times[index]))
            at += 1
        return listed

    def entries_below(self, offset: int) -> Iterator[Entry]:
        for chunk in self._chunks:
            for at, present in enumerate(chunk.offsets):
                if present >= offset:
                    return
                if chunk.times[at] != _GONE:
                    yield Entry(present, chunk.lanes[at])

    def clear(self) -> None:
        self._chunks.clear()
        self._bases.clear()
        self._heap.clear()
        self.count = 0

    def _find(self, offset: int) -> tuple[_Chunk, int] | None:
        number = bisect_right(self._bases, offset) - 1
        if number < 0:
            return None
        chunk = self._chunks[number]
        at = bisect_left(chunk.offsets, offset)
        if at < len(chunk.offsets) and chunk.offsets[at] == offset and chunk.times[at] != _GONE:
            return chunk, at
        return None

    def _take(self, chunk: _Chunk, at: int) -> int:
        lane = chunk.lanes[at]
        chunk.times[at] = _GONE
        chunk.live -= 1
        self.count -= 1
        if not chunk.live:
            number = bisect_right(self._bases, chunk.offsets[at]) - 1
            del self._chunks[number], self._bases[number]
        elif chunk.live * chunk.thin < len(chunk.offsets):
            chunk.squeeze()
        return lane

    def _tidy(self) -> None:
        """Keep the head of the heap true, and the heap within twice what is pending."""
        heap = self._heap
        while heap and self.time_of(heap[0] & _OFFSET_MASK) != heap[0] >> _OFFSET_BITS:
            heappop(heap)
        if len(heap) > 2 * self.count + _STALE_SLACK:
            self._heap = [
                chunk.times[at] << _OFFSET_BITS | chunk.offsets[at]
                for chunk in self._chunks
                for at in range(len(chunk.offsets))
                if chunk.times[at] != _GONE
            ]
            heapify(self._heap)
