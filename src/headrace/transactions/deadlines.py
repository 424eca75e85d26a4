"""Machine: when open transactions run out of time.

Nearly all of them end long before. So a deadline that is cancelled or moved outwards costs one dictionary write: the heap
keeps the too early entry and puts it right when that comes to the top. `_at` is the truth, the heap an index over it.
"""

from __future__ import annotations

from heapq import heappop, heappush


class Deadlines:
    __slots__ = ("_at", "_heap", "_queued")

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._queued: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def set(self, key: str, at_ms: int) -> None:
        self._at[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._queued[key] = at_ms
            heappush(self._heap, (at_ms, key))

    def cancel(self, key: str) -> None:
        self._at.pop(key, None)

    def next_ms(self) -> int | None:
        self._tidy_top()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[str]:
        """Everything due, earliest first. They stay set until what they cause cancels them."""
        return [key for _, key in sorted((at_ms, key) for key, at_ms in self._at.items() if at_ms <= now_ms)]

    def _tidy_top(self) -> None:
        heap, queued = self._heap, self._queued
        while heap:
            entry_ms, key = heap[0]
            at_ms = self._at.get(key) if queued.get(key) == entry_ms else None
            if at_ms == entry_ms:
                return
            heappop(heap)
            if queued.get(key) == entry_ms:
                del queued[key]
                if at_ms is not None:
                    queued[key] = at_ms
                    heappush(heap, (at_ms, key))
