"""Machine: which of millions of keys comes first. A key is a time and an offset in one number, `time << 63 | offset`.

A heap of Python numbers costs 48 bytes for each and, what is worse, makes every full garbage collection walk through all of
them: 90 ms with a million. So only what came last is in a heap. When that has grown it is sorted and laid away as a run: two
arrays of plain numbers, 16 bytes for each key, which the collector does not look into. What comes first is the first of
the heap or of one of the runs, whose heads are in a heap of their own.

Keys are never searched for. An owner that changes its mind adds another key and skips the one that is not true any more;
`weed` finds such keys bit by bit, so that they do not pile up.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace, merge

OFFSET_BITS = 63
OFFSET_MASK = (1 << OFFSET_BITS) - 1

_RUN_KEYS = 2048
_SPARSE_KEYS = _RUN_KEYS // 8
_SPARSE_RUNS = 8
"""So many runs of which little is left become one."""


class _Run:
    """Keys in order; those before `at` were taken."""

    __slots__ = ("at", "offsets", "times")

    def __init__(self, keys: list[int]) -> None:
        self.times = array("q", [key >> OFFSET_BITS for key in keys])
        self.offsets = array("q", [key & OFFSET_MASK for key in keys])
        self.at = 0

    def __len__(self) -> int:
        return len(self.times) - self.at

    @property
    def head(self) -> int:
        return self.times[self.at] << OFFSET_BITS | self.offsets[self.at]

    def take(self) -> None:
        self.at += 1
        if self.at > _SPARSE_KEYS and 2 * self.at > len(self.times):
            del self.times[: self.at], self.offsets[: self.at]
            self.at = 0

    def __iter__(self) -> Iterator[int]:
        for at in range(self.at, len(self.times)):
            yield self.times[at] << OFFSET_BITS | self.offsets[at]


class Agenda:
    __slots__ = ("_count", "_fresh", "_heads", "_made", "_runs")

    def __init__(self) -> None:
        self._fresh: list[int] = []
        self._runs: dict[int, _Run] = {}
        self._heads: list[tuple[int, int]] = []
        """(first key, number of the run), as a heap."""
        self._made = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, key: int) -> None:
        fresh = self._fresh
        heappush(fresh, key)
        self._count += 1
        if len(fresh) >= _RUN_KEYS:
            self._fresh = []
            fresh.sort()
            self._lay_away(fresh)

    def push_all(self, keys: list[int]) -> None:
        if len(keys) < _SPARSE_KEYS:
            for key in keys:
                self.push(key)
            return
        keys = sorted(keys)
        self._count += len(keys)
        for start in range(0, len(keys), _RUN_KEYS):
            self._lay_away(keys[start : start + _RUN_KEYS])

    def head(self) -> int | None:
        fresh, heads = self._fresh, self._heads
        if heads and (not fresh or heads[0][0] < fresh[0]):
            return heads[0][0]
        return fresh[0] if fresh else None

    def pop(self) -> None:
        """Take out the head."""
        fresh, heads = self._fresh, self._heads
        self._count -= 1
        if not heads or (fresh and fresh[0] <= heads[0][0]):
            heappop(fresh)
            return
        number = heads[0][1]
        run = self._runs[number]
        run.take()
        if len(run):
            heapreplace(heads, (run.head, number))
        else:
            heappop(heads)
            del self._runs[number]

    def upto(self, bound: int) -> Iterator[int]:
        """The keys at or before `bound` in no order; nothing may change meanwhile.

        In a heap they are a tree at its root, so they are walked without sorting or popping anything.
        """
        fresh, heads = self._fresh, self._heads
        walk = [0]
        while walk:
            at = walk.pop()
            if at < len(fresh) and fresh[at] <= bound:
                yield fresh[at]
                walk += (2 * at + 1, 2 * at + 2)
        walk.append(0)
        while walk:
            at = walk.pop()
            if at < len(heads) and heads[at][0] <= bound:
                for key in self._runs[heads[at][1]]:
                    if key > bound:
                        break
                    yield key
                walk += (2 * at + 1, 2 * at + 2)

    def weed(self, is_true: Callable[[int], bool]) -> None:
        """Drop what is not true any more from one part; the next call looks at the next."""
        if 2 * len(self._fresh) >= self._count:
            kept = [key for key in self._fresh if is_true(key)]
            self._count -= len(self._fresh) - len(kept)
            heapify(kept)
            self._fresh = kept
            return
        number, run = next(iter(self._runs.items()))
        kept = [key for key in run if is_true(key)]
        self._count -= len(run) - len(kept)
        self._drop([number])
        self._lay_away(kept)

    def clear(self) -> None:
        self._fresh.clear()
        self._runs.clear()
        self._heads.clear()
        self._count = 0

    def _lay_away(self, keys: list[int]) -> None:
        sparse = [number for number, run in self._runs.items() if len(run) < _SPARSE_KEYS]
        if len(sparse) >= _SPARSE_RUNS:
            few = sparse[:_SPARSE_RUNS]
            self._add_run(list(merge(*(self._runs[number] for number in few))))
            self._drop(few)
        self._add_run(keys)

    def _add_run(self, keys: list[int]) -> None:
        if keys:
            self._made += 1
            self._runs[self._made] = _Run(keys)
            heappush(self._heads, (keys[0], self._made))

    def _drop(self, numbers: list[int]) -> None:
        for number in numbers:
            del self._runs[number]
        self._heads = [head for head in self._heads if head[1] in self._runs]
        heapify(self._heads)
