"""Machine: the wall clock as far as retention believes it (S23): only as fast as time passes.

Beyond what the monotonic clock confirms, a pass accepts at most one step (retention / 24, between a minute and an hour) and at
most twelve times the time that really passed. So a jump of ten years deletes one step's worth per pass, over hours in which
somebody can notice. What was believed is kept in the state file, so a restart does not start the believing anew. A clock that
goes back is believed at once (it only makes things younger), and so is its return to where it was.
"""

from __future__ import annotations

from headrace.log.config import HOUR_MS, MINUTE_MS, LogConfig

_CATCH_UP = 12
_STEPS_PER_RETENTION = 24


class TrustedClock:
    __slots__ = ("_confirmed_ms", "highest_ms")

    def __init__(self, highest_ms: int) -> None:
        self.highest_ms = highest_ms
        """The latest time ever believed."""
        self._confirmed_ms: int | None = None
        """The monotonic clock at the last call."""

    def believe(self, wall_ms: int, now_ms: int, step_ms: int) -> int:
        """The time to go by. `now_ms` is monotonic."""
        if self._confirmed_ms is None:
            allowed_ms = step_ms
        else:
            passed_ms = max(now_ms - self._confirmed_ms, 0)
            allowed_ms = passed_ms + min(step_ms, _CATCH_UP * passed_ms)
        self._confirmed_ms = now_ms
        if wall_ms > self.highest_ms:
            self.highest_ms = min(wall_ms, self.highest_ms + allowed_ms)
        return min(wall_ms, self.highest_ms)


def step_ms(config: LogConfig) -> int:
    if config.retention_ms < 0:
        return HOUR_MS
    return min(max(config.retention_ms // _STEPS_PER_RETENTION, MINUTE_MS), HOUR_MS)
