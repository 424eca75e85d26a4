"""Adapter: a clock that a test moves, with the event loop whose timers follow it.

Drivers read the time from the clock port and wait on the running loop; both come from here, so what is due between before and after
an `advance` happens, in its order: visibility, delays, schedules, sessions, retention. Leases do not follow: whether a process lives
is a question of real time (`Runtime.lease_clock`, decision 0056).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.broker.runtime import SystemClock

STRIDES = 60
"""An advance is made in so many strides at most: what is due within one of them happens at its end."""
QUIET_TURNS = 3
MAX_TURNS = 2_000
"""A loop that clients keep busy is never quiet."""
AT_WORK_S = 0.000_5


class MovingClock:
    """core.ports.Clock, ahead of the machine's."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._system.now_ms() + self.ahead_ms

    def wall_ms(self) -> int:
        return self._system.wall_ms() + self.ahead_ms


class MovingLoop(asyncio.SelectorEventLoop):
    """Real sockets and threads; its time is the machine's plus what the clock is ahead."""

    _ready: Any
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        self.clock = MovingClock()
        self.at_work: list[Callable[[], bool]] = []
        """Asked whether somebody still works in a thread for what the loop has begun."""
        super().__init__()

    def time(self) -> float:
        return super().time() + self.clock.ahead_ms / 1000

    async def advance(self, by_ms: int, strides: int = STRIDES, longest_ms: int | None = None) -> None:
        """From timer to timer, or further when they are many: a broker looks at something every second. Never further than
        `longest_ms` at once."""
        left_ms = by_ms
        longest_ms = longest_ms or by_ms
        smallest_ms = max(1, by_ms // max(1, strides))
        with _no_word_of_standing_still():
            await self.settle()
            while left_ms > 0:
                stride_ms = min(left_ms, longest_ms, max(smallest_ms, self._next_timer_ms()))
                self.clock.ahead_ms += stride_ms
                left_ms -= stride_ms
                await self.settle()

    def _next_timer_ms(self) -> int:
        due_s = min((timer.when() for timer in self._scheduled if not timer.cancelled()), default=0.0)
        return int((due_s - self.time()) * 1000) + 1

    async def settle(self) -> None:
        """Until nothing is left to do at this moment. What a client does about it is its own affair."""
        quiet = turns = 0
        while quiet < QUIET_TURNS and turns < MAX_TURNS:
            turns += 1
            await asyncio.sleep(0)
            if self._ready:
                quiet = 0
            elif any(busy() for busy in self.at_work):
                quiet = 0
                await asyncio.sleep(AT_WORK_S)
            else:
                quiet += 1


@contextmanager
def _no_word_of_standing_still() -> Iterator[None]:
    """A broker that finds an hour gone says that its loop stood still. Here it did not."""

    def other(record: logging.LogRecord) -> bool:
        return "stood still" not in str(record.msg)

    housekeeping = logging.getLogger("headrace.broker.housekeeping")
    housekeeping.addFilter(other)
    try:
        yield
    finally:
        housekeeping.removeFilter(other)


class ClockHandle:
    """The clock of a broker, for the test that started it: from any thread, and from a coroutine of another loop."""

    def __init__(self, loop: MovingLoop, longest_ms: int | None = None) -> None:
        self._loop = loop
        self._longest_ms = longest_ms

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
        strides: int = STRIDES,
    ) -> None:
        """Let so much time pass, now. It returns when what was due has happened.

        Timers fire in their order, each no later than by a `strides`th of the whole: more strides are more exact, and slower.
        """
        by = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        by_ms = round(by / timedelta(milliseconds=1))
        if by_ms < 0:
            raise ValueError("time does not go back")
        moved = self._loop.advance(by_ms, strides, self._longest_ms)
        asyncio.run_coroutine_threadsafe(moved, self._loop).result()

    def now(self) -> datetime:
        """What time the broker thinks it is, UTC."""
        return datetime.fromtimestamp(self._loop.clock.wall_ms() / 1000, UTC)

    @property
    def ahead(self) -> timedelta:
        """How far it was moved."""
        return timedelta(milliseconds=self._loop.clock.ahead_ms)
