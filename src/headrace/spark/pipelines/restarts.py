"""Machine: when a pipeline that failed is tried again: soon at first, then less and less often, and soon again once it has run well."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 300.0
HEALTHY_SECONDS = 300.0
"""A run of this length makes up for what was before it."""
FAILING_AFTER = 5
"""So many failures in a row are called failing and no longer backing-off."""


@dataclass(slots=True)
class Restarts:
    started: float = 0.0
    attempts: int = 0
    """Failures in a row."""

    def begin(self, now: float) -> None:
        self.started = now

    def failed(self, now: float, dice: float) -> float:
        """Seconds until the next try. `dice` (0 to 1) spreads those of many pipelines that a broker's outage has stopped at once."""
        if now - self.started >= HEALTHY_SECONDS:
            self.attempts = 0
        self.attempts += 1
        longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(self.attempts - 1, 16))
        return longest * (0.5 + dice / 2)

    @property
    def state(self) -> str:
        return "failing" if self.attempts > FAILING_AFTER else "backing-off"
