"""Machine: how many partitions a queue should have for its load (Q11).

Doubles when the queue has been busy for a while and halves when it has been idle for longer. Busy and idle are far apart: a
queue is idle only when half of its partitions would not even be half busy, so no steady load makes it go to and fro; and
each change starts both waits anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Elastic:
    """`rate` (messages a second) and `backlog` (ready messages) are what one partition should have at most."""

    max_partitions: int
    min_partitions: int = 1
    rate: int = 2_000
    backlog: int = 10_000
    grow_after_ms: int = 5_000
    shrink_after_ms: int = 300_000

    def problem(self) -> str | None:
        if not 1 <= self.min_partitions <= self.max_partitions <= 1_000:
            return "an elastic queue has 1 <= min_partitions <= max_partitions <= 1000"
        if self.rate < 1 or self.backlog < 1:
            return "rate and backlog of an elastic queue are at least 1"
        if self.grow_after_ms < 0 or self.shrink_after_ms < 0:
            return "a duration can not be negative"
        return None


class QueuePressure(NamedTuple):
    sent: int
    """Messages that were ever sent."""
    ready: int


class Elasticity:
    """Of one queue. Knows nothing but what it was told, so whoever becomes responsible just begins anew."""

    __slots__ = ("_busy_ms", "_idle_ms", "_seen_ms", "_sent")

    def __init__(self) -> None:
        self._seen_ms: int | None = None
        self._sent = 0
        self._busy_ms: int | None = None
        self._idle_ms: int | None = None

    def step(self, elastic: Elastic, active: int, load: QueuePressure, now_ms: int) -> int:
        """How many partitions new messages should be placed in; `active` when nothing changes."""
        before_ms, before = self._seen_ms, self._sent
        self._seen_ms, self._sent = now_ms, load.sent
        wanted = min(max(active, elastic.min_partitions), elastic.max_partitions)
        if wanted != active:
            return self._changed(wanted)
        if before_ms is None or now_ms <= before_ms:
            return active
        rate = max(0, load.sent - before) * 1000 / (now_ms - before_ms)
        if rate > elastic.rate * active or load.ready > elastic.backlog * active:
            self._idle_ms = None
            self._busy_ms = before_ms if self._busy_ms is None else self._busy_ms
            if now_ms - self._busy_ms >= elastic.grow_after_ms and active < elastic.max_partitions:
                return self._changed(min(active * 2, elastic.max_partitions))
            return active
        self._busy_ms = None
        half = max(active // 2, elastic.min_partitions)
        if half < active and rate * 2 <= elastic.rate * half and load.ready * 2 <= elastic.backlog * half:
            self._idle_ms = before_ms if self._idle_ms is None else self._idle_ms
            if now_ms - self._idle_ms >= elastic.shrink_after_ms:
                return self._changed(half)
            return active
        self._idle_ms = None
        return active

    def _changed(self, active: int) -> int:
        self._busy_ms = self._idle_ms = None
        return active
