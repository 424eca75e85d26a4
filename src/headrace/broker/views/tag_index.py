"""Machine: which tags the batches of a partition hold, shared by all its views, so that most need not be read again.

Filled by the first view that asks for tags while it reads, kept in memory only: it is a cache that any reading rebuilds
(docs/decisions/0012-views-are-lenses.md). Invariant: a batch that holds a wanted tag is never skipped.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

RUN_BATCHES = 4_096
MAX_SKIPPED = 20_000
"""In one go: this runs on the event loop."""


class Tagged(NamedTuple):
    """One batch as the index keeps it."""

    next_offset: int
    size: int
    mask: int


class Stretch(NamedTuple):
    """Where to go on reading, and how much of it is known to be worth it."""

    offset: int
    read_bytes: int | None
    """None: the index knows nothing here, read what comes. 0: enough was stepped over for one go."""
    skipped: int
    """Batches that were stepped over."""


class _Run:
    """Batches without a gap, from `start` on."""

    __slots__ = ("ends", "masks", "sizes", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.ends = array("q")
        self.sizes = array("l")
        self.masks = array("Q")

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else self.start


class TagIndex:
    """Of one partition."""

    __slots__ = ("_budget", "_runs", "_starts", "_state")

    def __init__(self, budget: TagBudget) -> None:
        self._budget = budget
        self._runs: list[_Run] = []
        self._starts: list[int] = []
        self._state: object = None

    def valid_for(self, state: object) -> None:
        if state != self._state:
            self._state = state
            for run in self._runs:
                self._budget.drop(run)
            self._runs.clear()
            self._starts.clear()

    def add(self, start: int, batches: Sequence[Tagged]) -> None:
        """Batches that follow each other, the first of them from `start` on. What is known already stays as it is."""
        run = self._run_at(start)
        if run is not None and run.start <= start < run.end:
            return
        for batch in batches:
            if run is None or run.end != start or len(run.ends) >= RUN_BATCHES:
                following = self._run_at(batch.next_offset - 1)
                if following is not None and following.start > start:
                    return  # it has met what is known
                run = self._open(start)
            run.ends.append(batch.next_offset)
            run.sizes.append(batch.size)
            run.masks.append(batch.mask)
            self._budget.grew(run, self)
            start = batch.next_offset
        while run is not None and self._overlaps_next(run):
            self._forget(self._runs[bisect_right(self._starts, run.start)])

    def _overlaps_next(self, run: _Run) -> bool:
        number = bisect_right(self._starts, run.start)
        return number < len(self._runs) and self._runs[number].start < run.end

    def _run_at(self, offset: int) -> _Run | None:
        number = bisect_right(self._starts, offset) - 1
        return self._runs[number] if number >= 0 else None

    def _open(self, start: int) -> _Run:
        run = _Run(start)
        number = bisect_right(self._starts, start)
        self._runs.insert(number, run)
        self._starts.insert(number, start)
        return run

    def _forget(self, run: _Run) -> None:
        self._budget.drop(run)
        self.evict(run)

    def evict(self, run: _Run) -> None:
        number = bisect_right(self._starts, run.start) - 1
        if 0 <= number < len(self._runs) and self._runs[number] is run:
            del self._runs[number], self._starts[number]

    def next_stretch(self, offset: int, wanted: int, max_bytes: int, upto: int) -> Stretch:
        """Step over batches that share no bit with `wanted`, then measure those that may, up to `max_bytes`."""
        skipped = 0
        size: int | None = None
        position = offset
        while position < upto:
            run = self._run_at(position)
            if run is None or not run.start <= position < run.end:
                break
            self._budget.used(run)
            number = bisect_right(run.ends, position)
            while number < len(run.ends) and run.ends[number] <= upto:
                if run.masks[number] & wanted:
                    size = (size or 0) + run.sizes[number]
                    if size >= max_bytes:
                        return Stretch(offset, size, skipped)
                elif size is not None:
                    return Stretch(offset, size, skipped)
                else:
                    skipped += 1
                    offset = run.ends[number]
                    if skipped >= MAX_SKIPPED:
                        return Stretch(offset, 0, skipped)
                position = run.ends[number]
                number += 1
            if position < run.end:
                break
        return Stretch(offset, size, skipped)


class TagBudget:
    """The batches that all indexes of a broker may hold."""

    def __init__(self, max_batches: int) -> None:
        self._max_batches = max_batches
        self._held: OrderedDict[int, tuple[_Run, TagIndex]] = OrderedDict()
        self.batches = 0

    def grew(self, run: _Run, index: TagIndex) -> None:
        self._held[id(run)] = (run, index)
        self._held.move_to_end(id(run))
        self.batches += 1
        while self.batches > self._max_batches and len(self._held) > 1:
            _, (oldest, owner) = self._held.popitem(last=False)
            self.batches -= len(oldest.ends)
            owner.evict(oldest)

    def used(self, run: _Run) -> None:
        self._held.move_to_end(id(run))

    def drop(self, run: _Run) -> None:
        if self._held.pop(id(run), None) is not None:
            self.batches -= len(run.ends)
