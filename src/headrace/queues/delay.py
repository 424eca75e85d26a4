"""Machine: a timetable of offsets, for messages that are not due yet and for messages that will expire.

A million pending entries have to cost little and none may be lost in the crowd, so there are two structures of plain
numbers and no object per message:
- columns (offset, time, lane) in offset order, in chunks: 20 bytes per entry. They are the truth: lookup, listing,
  moving and cancelling go through them.
- an agenda of keys `time << 63 | offset`: 16 bytes per entry. It only finds what is next; an entry that the columns
  do not confirm was moved or removed and is skipped.

Offsets are added in ascending order, because the log is read in that order. Times are wall clock, to the millisecond
and without an upper limit (Q7).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from headrace.queues.agenda import OFFSET_BITS, OFFSET_MASK, Agenda

_CHUNK_ENTRIES = 2048
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


class DelayedEntry(NamedTuple):
    offset: int
    lane: int


class Timetable:
    __slots__ = ("_agenda", "_bases", "_chunks", "_made", "count")

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._bases: list[int] = []
        """At or below the first offset of each chunk, so that one bisect finds the chunk."""
        self._agenda = Agenda()
        self._made = 0
        self.count = 0

    def __contains__(self, offset: int) -> bool:
        return self._find(offset) is not None

    def add(self, offset: int, time_ms: int, lane: int) -> None:
        time_ms = min(time_ms, LAST_MS)
        chunk = self._last_chunk(offset)
        chunk.offsets.append(offset)
        chunk.times.append(time_ms)
        chunk.lanes.append(lane)
        chunk.live += 1
        self.count += 1
        self._agenda.push(time_ms << OFFSET_BITS | offset)

    def add_all(self, offsets: Sequence[int], times: Sequence[int], lane: int) -> None:
        """Many of one lane, in ascending order."""
        times = [min(time_ms, LAST_MS) for time_ms in times]
        at = 0
        while at < len(offsets):
            chunk = self._last_chunk(offsets[at])
            end = min(len(offsets), at + _CHUNK_ENTRIES - len(chunk.offsets))
            chunk.offsets.extend(offsets[at:end])
            chunk.times.extend(times[at:end])
            chunk.lanes.extend([lane] * (end - at))
            chunk.live += end - at
            at = end
        self.count += len(offsets)
        self._agenda.push_all(
            [time_ms << OFFSET_BITS | offset for offset, time_ms in zip(offsets, times, strict=True)]
        )

    def _last_chunk(self, offset: int) -> _Chunk:
        """Where an entry for `offset` goes."""
        if not self._chunks or len(self._chunks[-1].offsets) >= _CHUNK_ENTRIES:
            self._made += 1
            self._chunks.append(_Chunk(self._made))
            self._bases.append(offset)
        chunk = self._chunks[-1]
        assert not chunk.offsets or offset > chunk.offsets[-1], "the log is read in order"
        return chunk

    def time_of(self, offset: int) -> int | None:
        found = self._find(offset)
        return None if found is None else found[0].times[found[1]]

    def lane_of(self, offset: int) -> int | None:
        found = self._find(offset)
        return None if found is None else found[0].lanes[found[1]]

    def head_ms(self) -> int | None:
        head = self._agenda.head()
        return None if head is None else head >> OFFSET_BITS

    def move(self, offset: int, time_ms: int) -> None:
        found = self._find(offset)
        if found is None:
            return
        time_ms = min(time_ms, LAST_MS)
        found[0].times[found[1]] = time_ms
        self._agenda.push(time_ms << OFFSET_BITS | offset)
        self._tidy()

    def remove(self, offset: int) -> int | None:
        """The lane of what was removed, or None."""
        found = self._find(offset)
        if found is None:
            return None
        lane = self._take(*found)
        self._tidy()
        return lane

    def pop_due(self, wall_ms: int, limit: int) -> list[DelayedEntry]:
        """The earliest entries at or before `wall_ms`, removed."""
        popped: list[DelayedEntry] = []
        agenda = self._agenda
        bound = wall_ms << OFFSET_BITS | OFFSET_MASK
        while len(popped) < limit and (key := agenda.head()) is not None and key <= bound:
            agenda.pop()
            offset = key & OFFSET_MASK
            found = self._find(offset)
            if found is not None and found[0].times[found[1]] == key >> OFFSET_BITS:
                popped.append(DelayedEntry(offset, self._take(*found)))
        self._tidy()
        return popped

    def due(self, wall_ms: int, limit: int) -> list[int]:
        """Some `limit` of the offsets at or before `wall_ms`; changes nothing."""
        found: dict[int, None] = {}  # moved away and back again, an entry has two keys
        if limit > 0:
            for key in self._agenda.upto(wall_ms << OFFSET_BITS | OFFSET_MASK):
                if self._is_true(key):
                    found[key & OFFSET_MASK] = None
                    if len(found) >= limit:
                        break
        return list(found)

    def quiet(self, wall_ms: int, passed: Container[int]) -> None:
        """Raise no more alarm for entries of `passed` that are due; they stay in the columns."""
        agenda = self._agenda
        while (
            (key := agenda.head()) is not None
            and key >> OFFSET_BITS <= wall_ms
            and key & OFFSET_MASK in passed
        ):
            agenda.pop()
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

    def entries_below(self, offset: int) -> Iterator[DelayedEntry]:
        for chunk in self._chunks:
            for at, present in enumerate(chunk.offsets):
                if present >= offset:
                    return
                if chunk.times[at] != _GONE:
                    yield DelayedEntry(present, chunk.lanes[at])

    def clear(self) -> None:
        self._chunks.clear()
        self._bases.clear()
        self._agenda.clear()
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

    def _is_true(self, key: int) -> bool:
        return self.time_of(key & OFFSET_MASK) == key >> OFFSET_BITS

    def _tidy(self) -> None:
        """Keep the head of the agenda true, and the agenda within about twice what is pending."""
        agenda = self._agenda
        while (key := agenda.head()) is not None and not self._is_true(key):
            agenda.pop()
        if len(agenda) > 2 * self.count + _STALE_SLACK:
            agenda.weed(self._is_true)
