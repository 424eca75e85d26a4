"""Machine: when a message that was not taken is tried again: growing gaps, a draw that spreads them, and what the endpoint asked for.

The draw is an argument, so the same draws give the same gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from headrace.core.units import is_digits
from headrace.queues.config import Backoff

MAX_RETRY_AFTER_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    initial_ms: int = 1_000
    multiplier: float = 2.0
    max_ms: int = 60 * 60 * 1000
    jitter: float = 0.25
    """Up to this part of a gap is taken off."""

    def delay_ms(self, attempt: int, draw: float, retry_after_ms: int | None = None) -> int:
        """After the `attempt`th try (from 1); `draw` in [0, 1). Never earlier than the endpoint asked for."""
        grown = Backoff(self.initial_ms, self.multiplier, self.max_ms, self.jitter).delay_ms(attempt, draw)
        return max(1, grown, min(retry_after_ms or 0, MAX_RETRY_AFTER_MS))


def retry_after_ms(text: str, wall_ms: int) -> int | None:
    """A number of seconds or an HTTP date; None for anything else, and for times that have passed."""
    text = text.strip()
    if is_digits(text) and len(text) <= 9:
        return min(int(text) * 1000, MAX_RETRY_AFTER_MS)
    try:
        at_ms = int(parsedate_to_datetime(text).timestamp() * 1000)
    except (ValueError, TypeError, OverflowError):
        return None
    return min(at_ms - wall_ms, MAX_RETRY_AFTER_MS) if at_ms > wall_ms else None
