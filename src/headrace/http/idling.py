"""Machine: sessions of the console that nobody touches any more (W18). A page that is open asks for numbers every few seconds, and that is nobody at it: it
says so with a header when somebody was.

Of this broker alone, and in its memory: what it has never seen, or not since it began, begins now. A session ends after twelve hours whatever is touched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256

from headrace.core.ports import Clock

TOUCHED = b"x-headrace-touched"
MAX_SESSIONS = 10_000


async def _end_nothing(token: str) -> None:
    pass


class Idling:
    def __init__(self, clock: Clock, idle_ms: int) -> None:
        self._clock = clock
        self._idle_ms = idle_ms
        self._touched: dict[bytes, int] = {}
        """By what can't be turned back into the session; the one that was touched last comes last."""
        self.end: Callable[[str], Awaitable[None]] = _end_nothing
        """Of the cluster's memory; set when there is a cluster."""

    def has_ended(self, token: str, *, is_touch: bool) -> bool:
        """Whether nobody has touched it for too long; if not, this may be a touch."""
        key, now_ms = sha256(token.encode()).digest(), self._clock.now_ms()
        last_ms = self._touched.get(key, now_ms)
        if self._idle_ms and now_ms - last_ms >= self._idle_ms:
            self._touched.pop(key, None)
            return True
        if is_touch or key not in self._touched:
            self._touched.pop(key, None)
            self._touched[key] = now_ms
            if len(self._touched) > MAX_SESSIONS:
                self._touched.pop(next(iter(self._touched)))
        return False
