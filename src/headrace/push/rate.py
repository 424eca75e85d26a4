"""Machine: a cap on requests per second: a bucket that fills with time."""

from __future__ import annotations

BURST_S = 0.25
"""So much of a second may be sent at once."""
UNLIMITED = 1 << 30


class RateCap:
    __slots__ = ("_at_ms", "_per_s", "_tokens")

    def __init__(self, per_s: float, now_ms: int) -> None:
        """0 is no cap."""
        self._per_s = per_s
        self._at_ms = now_ms
        self._tokens = self._room

    @property
    def _room(self) -> float:
        return max(1.0, self._per_s * BURST_S)

    def set_rate(self, per_s: float, now_ms: int) -> None:
        self._fill(now_ms)
        self._per_s = per_s
        self._tokens = min(self._tokens, self._room)

    def permits(self, now_ms: int) -> int:
        if self._per_s <= 0:
            return UNLIMITED
        self._fill(now_ms)
        return int(self._tokens)

    def took(self, count: int) -> None:
        """May go below zero: what was sent too much is made up for by waiting."""
        if self._per_s > 0:
            self._tokens -= count

    def wait_ms(self, now_ms: int) -> int:
        """Until one more is permitted."""
        if self._per_s <= 0:
            return 0
        self._fill(now_ms)
        lacking = 1.0 - self._tokens
        return 0 if lacking <= 0 else int(lacking / self._per_s * 1000) + 1

    def _fill(self, now_ms: int) -> None:
        passed_ms = max(0, now_ms - self._at_ms)
        self._at_ms = max(self._at_ms, now_ms)
        self._tokens = min(self._room, self._tokens + passed_ms / 1000 * self._per_s)
