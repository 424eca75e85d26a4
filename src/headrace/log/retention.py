"""Machine: which segments are too old or too many, and what time it is for that purpose (S23, R52).

Retention is the one part of a log that a wrong clock could turn into data loss, so it does not simply believe it:

- A segment's age counts from its highest timestamp, clipped to the time between its first append and its last (plus
  a skew): records dated into the past do not vanish on arrival, records dated into the future do not live for ever.
- The clock itself is believed only as fast as time passes. Beyond what the monotonic clock confirms, a pass accepts at
  most one step (retention / 24, between a minute and an hour) and at most twelve times the time that really passed. So
  a jump of ten years deletes one step's worth per pass, over hours in which somebody can notice. What was believed
  is kept in the state file, so a restart does not start the believing anew. A clock that goes back is believed at
  once (it only makes things younger), and so is its return to where it was.
- The active segment is never deleted: it is rolled when all of it is expired, and goes one pass later.

Invariant: nothing at or above the high watermark or of an open transaction is ever chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.log.config import HOUR_MS, MINUTE_MS, LogConfig
from headrace.log.segment import Segment

_CATCH_UP = 12
_STEPS_PER_RETENTION = 24


class RetentionReport(NamedTuple):
    deleted_segments: int
    deleted_bytes: int
    start_offset: int


class TrustedClock:
    """The wall clock as far as it can be believed."""

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


def age_basis_ms(segment: Segment, config: LogConfig) -> int:
    """From when a segment's age counts."""
    return min(max(segment.max_timestamp, segment.created_ms), segment.appended_ms + config.timestamp_skew_ms)


def is_expired(segment: Segment, config: LogConfig, believed_ms: int) -> bool:
    return config.retention_ms >= 0 and believed_ms - age_basis_ms(segment, config) > config.retention_ms


def deletable_count(
    closed: Sequence[Segment],
    active: Segment,
    config: LogConfig,
    believed_ms: int,
    start_offset: int,
    limit: int,
) -> int:
    """How many of the oldest segments may go: below the log's start, too old, or too much; none of them reaching
    `limit` (high watermark and first open transaction)."""
    excess = active.size + sum(segment.size for segment in closed) - config.retention_bytes
    count = 0
    following = [*closed[1:], active]
    for segment, successor in zip(closed, following, strict=False):
        # A gap behind a compacted segment belongs to it, so its successor says where it ends.
        end = successor.base_offset
        too_big = config.retention_bytes >= 0 and excess - segment.size >= 0
        below_start = end <= start_offset
        if not below_start and not (config.delete and (too_big or is_expired(segment, config, believed_ms))):
            break
        if end > limit:
            break
        excess -= segment.size
        count += 1
    return count
