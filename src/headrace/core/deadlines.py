"""Kernel: many deadlines, few of which ever come due.

A heartbeat moves its deadline outwards, thousands of times for each time one is missed, and nearly every transaction ends long before
its time. So moving a deadline outwards, and cancelling it, costs one dictionary write: the heap keeps the old, too early entry and puts
it right when that comes to the top. The heap is an index over `_at`, which is the truth; reading may tidy the heap but never changes `_at`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
"""What comes due; of two that do at the same moment the smaller comes first."""


class Deadlines(Generic[K]):
    __slots__ = ("_at", "_heap", "_queued")

    def __init__(self) -> None:
        self._at: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []

    def __len__(self) -> int:
        return len(self._at)

    def __iter__(self) -> Iterator[K]:
        return iter(self._at)

    def at(self, key: K) -> int | None:
        return self._at.get(key)

    def set(self, key: K, at_ms: int) -> None:
        self._at[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._queued[key] = at_ms
            heappush(self._heap, (at_ms, key))

    def cancel(self, key: K) -> None:
        self._at.pop(key, None)

    def next_ms(self) -> int | None:
        """The earliest deadline, exactly."""
        self._tidy_top()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[K]:
        """Everything due, earliest first. They stay set: applying what they cause cancels or moves them."""
        found: dict[K, int] = {}  # a dict, because a key that moved in and out again may be queued twice
        while True:
            self._tidy_top()
            if not self._heap or self._heap[0][0] > now_ms:
                break
            entry_ms, key = heappop(self._heap)
            found[key] = entry_ms
        for key, entry_ms in found.items():
            heappush(self._heap, (entry_ms, key))
        return list(found)

    def _tidy_top(self) -> None:
        heap, queued = self._heap, self._queued
        while heap:
            entry_ms, key = heap[0]
            if queued.get(key) != entry_ms:
                heappop(heap)  # an earlier entry took its place
                continue
            at_ms = self._at.get(key)
            if at_ms is None:
                heappop(heap)
                del queued[key]
            elif at_ms > entry_ms:
                queued[key] = at_ms
                heapreplace(heap, (at_ms, key))
            else:
                return
