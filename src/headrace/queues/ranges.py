"""Machine: sets of offsets kept as ranges, so that ten million neighbours cost as much as one.

A range is half open, `first <= offset < end`. `Runs` keeps all its edges in one sorted array (first, end, first, end,
...): an offset is inside when the number of edges at or before it is odd. `OffsetSet` is the same thing cut into
pages of 65,536 offsets, so that an insert in the middle of a million ranges moves one page and not the whole array.

Invariant: edges strictly ascend (neighbouring ranges are merged) and `count` is the number of offsets inside.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator

Range = tuple[int, int]
Refuse = Callable[[int], bool]

_PAGE_BITS = 16
_MAX_REFUSED = 1_000
"""How many refused offsets a pick looks past. They are about to be settled, so the next pick meets fewer."""


class Runs:
    """A small set of offsets: one flat array."""

    __slots__ = ("_edges", "count")

    def __init__(self) -> None:
        self._edges: array[int] = array("q")
        self.count = 0

    def __contains__(self, offset: int) -> bool:
        return bisect_right(self._edges, offset) & 1 == 1

    def first(self) -> int | None:
        return self._edges[0] if self._edges else None

    def add(self, first: int, end: int) -> int:
        """How many of [first, end) were not inside before."""
        edges = self._edges
        if not edges or first > edges[-1]:
            edges.append(first)
            edges.append(end)
            added = end - first
        elif first == edges[-1]:
            edges[-1] = end
            added = end - first
        else:
            added = end - first - self.covered(first, end)
            low, high = bisect_left(edges, first), bisect_right(edges, end)
            fresh = array("q")
            if not low & 1:
                fresh.append(first)
            if not high & 1:
                fresh.append(end)
            edges[low:high] = fresh
        self.count += added
        return added

    def discard(self, first: int, end: int) -> int:
        """How many of [first, end) were inside."""
        edges = self._edges
        if not edges:
            return 0
        if first <= edges[0] and end <= edges[1]:  # taking from the front, the common case
            removed = end - edges[0]
            if removed <= 0:
                return 0
            if end == edges[1]:
                del edges[:2]
            else:
                edges[0] = end
        else:
            removed = self.covered(first, end)
            if not removed:
                return 0
            low, high = bisect_left(edges, first), bisect_right(edges, end)
            fresh = array("q")
            if low & 1:
                fresh.append(first)
            if high & 1:
                fresh.append(end)
            edges[low:high] = fresh
        self.count -= removed
        return removed

    def covered(self, first: int, end: int) -> int:
        edges = self._edges
        low, high = bisect_right(edges, first), bisect_left(edges, end)
        if low > high:
            return 0
        total = (end if high & 1 else 0) - (first if low & 1 else 0)
        for index in range(low, high):
            total += edges[index] if index & 1 else -edges[index]
        return total

    def run_from(self, offset: int) -> int | None:
        """The end of the range that `offset` is in."""
        index = bisect_right(self._edges, offset)
        return self._edges[index] if index & 1 else None

    def runs(self, first: int = 0) -> Iterator[Range]:
        """The ranges at or after `first`; one that straddles it is cut."""
        edges = self._edges
        index = bisect_right(edges, first)
        if index & 1:
            yield first, edges[index]
            index += 1
        for at in range(index, len(edges), 2):
            yield edges[at], edges[at + 1]

    def head(self, limit: int, refuse: Refuse | None = None) -> list[Range]:
        return take_head(self.runs(), limit, refuse)

    def clear(self) -> None:
        del self._edges[:]
        self.count = 0


class OffsetSet:
    """A set of offsets of any size."""

    __slots__ = ("_order", "_pages", "count")

    def __init__(self) -> None:
        self._pages: dict[int, Runs] = {}
        self._order: list[int] = []
        self.count = 0

    def __contains__(self, offset: int) -> bool:
        page = self._pages.get(offset >> _PAGE_BITS)
        return page is not None and offset in page

    def first(self) -> int | None:
        return self._pages[self._order[0]].first() if self._order else None

    def add(self, first: int, end: int) -> int:
        added = 0
        while first < end:
            number = first >> _PAGE_BITS
            stop = min(end, (number + 1) << _PAGE_BITS)
            page = self._pages.get(number)
            if page is None:
                page = self._pages[number] = Runs()
                if not self._order or number > self._order[-1]:
                    self._order.append(number)
                else:
                    insort(self._order, number)
            added += page.add(first, stop)
            first = stop
        self.count += added
        return added

    def discard(self, first: int, end: int) -> int:
        removed = 0
        at = bisect_left(self._order, first >> _PAGE_BITS)
        while at < len(self._order):
            number = self._order[at]
            base = number << _PAGE_BITS
            if base >= end:
                break
            page = self._pages[number]
            removed += page.discard(max(first, base), min(end, base + (1 << _PAGE_BITS)))
            if page.count:
                at += 1
            else:
                del self._pages[number], self._order[at]
        self.count -= removed
        return removed

    def run_from(self, offset: int) -> int | None:
        """The end of the range that `offset` is in."""
        end: int | None = None
        at = offset
        while (page := self._pages.get(at >> _PAGE_BITS)) is not None:
            stop = page.run_from(at)
            if stop is None:
                break
            end = at = stop
            if stop & ((1 << _PAGE_BITS) - 1):  # ends inside its page
                break
        return end

    def runs(self, first: int = 0) -> Iterator[Range]:
        """The ranges at or after `first`, merged over page borders; one that straddles `first` is cut."""
        pending: Range | None = None
        for at in range(bisect_left(self._order, first >> _PAGE_BITS), len(self._order)):
            for low, high in self._pages[self._order[at]].runs(first):
                if pending is None:
                    pending = low, high
                elif pending[1] == low:
                    pending = pending[0], high
                else:
                    yield pending
                    pending = low, high
        if pending is not None:
            yield pending

    def gaps(self, first: int, end: int) -> Iterator[Range]:
        """What is missing from [first, end)."""
        for low, high in self.runs(first):
            if low >= end:
                break
            if first < low:
                yield first, low
            first = high
        if first < end:
            yield first, end

    def head(self, limit: int, refuse: Refuse | None = None) -> list[Range]:
        """The first `limit` offsets that are not refused, as ranges."""
        if refuse is None and self._order:
            edges = self._pages[self._order[0]]._edges
            first, end = edges[0], edges[1]
            if limit > 0 and (end - first >= limit or (len(self._order) == 1 and len(edges) == 2)):
                return [(first, min(end, first + limit))]
        return take_head(self._near_runs(), limit, refuse)

    def _near_runs(self) -> Iterator[Range]:
        # Not merged over page borders: merging would walk the whole of a long range to hand out its first ten.
        for number in self._order:
            yield from self._pages[number].runs()

    def edges(self) -> array[int]:
        """Every edge in order, for a snapshot; at memory speed. Ranges are cut at page borders."""
        flat: array[int] = array("q")
        for number in self._order:
            flat.extend(self._pages[number]._edges)
        return flat

    def load_edges(self, flat: array[int]) -> None:
        for at in range(0, len(flat), 2):
            self.add(flat[at], flat[at + 1])

    def clear(self) -> None:
        self._pages.clear()
        self._order.clear()
        self.count = 0


def take_head(runs: Iterable[Range], limit: int, refuse: Refuse | None) -> list[Range]:
    taken: list[Range] = []
    refused = 0
    for first, end in runs:
        if limit <= 0 or refused > _MAX_REFUSED:
            break
        if refuse is None:
            end = min(end, first + limit)
            taken.append((first, end))
            limit -= end - first
            continue
        for offset in range(first, end):
            if refuse(offset):
                refused += 1
                if refused > _MAX_REFUSED:
                    break
                continue
            if taken and taken[-1][1] == offset:
                taken[-1] = taken[-1][0], offset + 1
            else:
                taken.append((offset, offset + 1))
            limit -= 1
            if limit <= 0:
                break
    return taken


def as_ranges(offsets: Iterable[int]) -> tuple[Range, ...]:
    """Distinct offsets in any order, as ranges."""
    ranges: list[Range] = []
    first = end = -1
    for offset in sorted(offsets):
        if offset == end:
            end += 1
            continue
        if end >= 0:
            ranges.append((first, end))
        first, end = offset, offset + 1
    if end >= 0:
        ranges.append((first, end))
    return tuple(ranges)
