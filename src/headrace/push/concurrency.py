"""Machine: how many requests an endpoint gets at once: as many as it takes without becoming slow (AIMD).

It begins with few and doubles until the endpoint first shows strain, then grows by one per round. Strain is a failure (halve) or
an answer that took much longer than the quickest ones lately (a tenth less) or longer than SLOW_MS at all (a quarter less). One
round is punished once: a burst of late answers is one piece of news.

Invariant: 1 <= minimum <= limit <= maximum.
"""

from __future__ import annotations

INITIAL = 2
SLOW_MS = 1_000
"""As Google Pub/Sub: an endpoint whose answers take longer than a second is not given more at once."""
TOLERATED_MS = 50
STRAIN = 3.0
"""So many times the quickest answer lately, plus what is tolerated, is strain."""
SUSPICIOUS = 1.5
ON_FAILURE = 0.5
ON_SLOWNESS = 0.75
ON_STRAIN = 0.9
BASELINE_WINDOW_MS = 30_000


class ConcurrencyLimit:
    __slots__ = (
        "_baseline_ms",
        "_growing_fast",
        "_limit",
        "_next_cut_ms",
        "_recent_ms",
        "_window_end_ms",
        "maximum",
    )

    def __init__(self, maximum: int, initial: int = INITIAL) -> None:
        self.maximum = max(1, maximum)
        self._limit = float(min(initial, self.maximum))
        self._growing_fast = True
        self._baseline_ms: int | None = None
        self._recent_ms: int | None = None
        """The quickest answer of the window that runs."""
        self._window_end_ms = 0
        self._next_cut_ms = 0

    @property
    def limit(self) -> int:
        return int(self._limit)

    def set_maximum(self, maximum: int) -> None:
        self.maximum = max(1, maximum)
        self._limit = min(self._limit, float(self.maximum))

    def succeeded(self, latency_ms: int, in_flight: int, now_ms: int) -> None:
        """`in_flight` counts the request that is answered: a limit that is not used says nothing about itself."""
        self._learn(latency_ms, now_ms)
        assert self._baseline_ms is not None
        if latency_ms > SLOW_MS:
            self._cut(ON_SLOWNESS, latency_ms, now_ms)
        elif latency_ms > self._baseline_ms * STRAIN + TOLERATED_MS:
            self._cut(ON_STRAIN, latency_ms, now_ms)
        elif in_flight * 2 >= self._limit:
            grown = self._limit + (1.0 if self._growing_fast else 1.0 / self._limit)
            self._limit = min(grown, float(self.maximum))

    def failed(self, latency_ms: int, now_ms: int) -> None:
        self._cut(ON_FAILURE, latency_ms, now_ms)

    def _cut(self, factor: float, latency_ms: int, now_ms: int) -> None:
        self._growing_fast = False
        if now_ms >= self._next_cut_ms:
            self._limit = max(1.0, self._limit * factor)
            # Whatever is on its way now was sent under the old limit; its answers are no fresh news.
            self._next_cut_ms = now_ms + max(1, latency_ms)

    def _learn(self, latency_ms: int, now_ms: int) -> None:
        if now_ms >= self._window_end_ms:
            self._end_window()
            self._window_end_ms = now_ms + BASELINE_WINDOW_MS
        self._recent_ms = latency_ms if self._recent_ms is None else min(self._recent_ms, latency_ms)
        self._baseline_ms = latency_ms if self._baseline_ms is None else min(self._baseline_ms, latency_ms)

    def _end_window(self) -> None:
        """When even the quickest answer was slower than before, the line in front of the endpoint may be of our own making:
        half of it is taken away to find out, and the baseline follows slowly."""
        recent_ms, before_ms = self._recent_ms, self._baseline_ms
        self._recent_ms = None
        if recent_ms is None or before_ms is None:
            return
        self._baseline_ms = min(recent_ms, before_ms + before_ms // 10 + 1)
        if recent_ms > before_ms * SUSPICIOUS + TOLERATED_MS / 2:
            self._limit = max(1.0, self._limit * ON_FAILURE)
