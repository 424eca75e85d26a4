"""Driver: long work in slices, so that no request keeps the loop from the others (A3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

from headrace.core.limits import SLICE_ENTRIES, SLICE_MS
from headrace.core.ports import Clock

T = TypeVar("T")


class Pace:
    """Counts what was done since others had their turn; both entries and time, because neither tells all."""

    __slots__ = ("_clock", "_done", "_since_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._done = 0
        self._since_ms = clock.now_ms()

    async def step(self, entries: int = 1) -> None:
        """Call it for each entry, before or after the work on it."""
        self._done += entries
        if self._done >= SLICE_ENTRIES or self._clock.now_ms() - self._since_ms >= SLICE_MS:
            await asyncio.sleep(0)
            self._done = 0
            self._since_ms = self._clock.now_ms()

    async def over(self, entries: Iterable[T]) -> AsyncIterator[T]:
        """The entries of a list, with a step after each."""
        for entry in entries:
            yield entry
            await self.step()
