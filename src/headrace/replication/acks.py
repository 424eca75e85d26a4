"""Machine: producers that wait until their records are committed (acks=all).

A waiter is an opaque value of the driver. Invariant: each waiter leaves exactly once: released because the high
watermark passed its offset, expired, or failed with the leadership (R18).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Waiter = TypeVar("Waiter")


class Acks(Generic[Waiter]):
    __slots__ = ("_by_deadline", "_by_offset", "_number", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, Waiter] = {}
        self._by_offset: list[tuple[int, int]] = []
        self._by_deadline: list[tuple[int, int]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, waiter: Waiter, offset: int, deadline_ms: int) -> None:
        """`waiter` waits until the high watermark is at least `offset` (last offset of its batch + 1)."""
        self._number += 1
        self._waiting[self._number] = waiter
        heappush(self._by_offset, (offset, self._number))
        heappush(self._by_deadline, (deadline_ms, self._number))

    def release(self, high_watermark: int) -> list[Waiter]:
        """Those whose records are committed, in the order of their offsets."""
        if not self._by_offset:
            return []
        released = self._pop(self._by_offset, high_watermark)
        self._sweep()
        return released

    def expire(self, now_ms: int) -> list[Waiter]:
        """Those whose time is up; their records may still be committed later."""
        expired = self._pop(self._by_deadline, now_ms)
        self._sweep()
        return expired

    def fail_all(self) -> list[Waiter]:
        """Everyone, because the leadership ended (R18) or the ISR became too small (R17)."""
        failed = [self._waiting[number] for number in sorted(self._waiting)]
        self._waiting.clear()
        self._by_offset.clear()
        self._by_deadline.clear()
        return failed

    def next_deadline(self) -> int | None:
        heap = self._by_deadline
        while heap and heap[0][1] not in self._waiting:
            heappop(heap)
        return heap[0][0] if heap else None

    def _pop(self, heap: list[tuple[int, int]], upto: int) -> list[Waiter]:
        gone = []
        while heap and heap[0][0] <= upto:
            number = heappop(heap)[1]
            if number in self._waiting:
                gone.append(self._waiting.pop(number))
        return gone

    def _sweep(self) -> None:
        """Each heap keeps entries of waiters that left by the other one; drop them before they outnumber the living."""
        for heap in (self._by_offset, self._by_deadline):
            if len(heap) > 64 and len(heap) > 4 * len(self._waiting):
                heap[:] = [entry for entry in heap if entry[1] in self._waiting]
                heapify(heap)
