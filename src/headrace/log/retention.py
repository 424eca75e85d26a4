"""Machine: which segments are too old or too many, and what time it is for that purpose (S23, R52).

Retention is the one part of a log that a wrong clock could turn into data loss, so it does not simply believe it:

- A segment's age counts from its highest timestamp, clipped to the time between its first append and its last (plus
  a skew): records dated into the past do not vanish on arrival, records dated into the future do not live for ever.
- The clock itself is believed only as fast as time passes (`trusted_clock.py`).
- The active segment is never deleted: it is rolled when all of it is expired, and goes one pass later.

Invariant: nothing at or above the high watermark or of an open transaction is ever chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.log.config import LogConfig
from headrace.log.parts import FULL_DISK, LogParts
from headrace.log.results import RollReason
from headrace.log.segment import Segment
from headrace.log.snapshots import ensure_snapshot


class RetentionReport(NamedTuple):
    deleted_segments: int
    deleted_bytes: int
    start_offset: int


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


class Retention:
    """Taking segments off the beginning of a log."""

    __slots__ = ("_parts",)

    def __init__(self, parts: LogParts) -> None:
        self._parts = parts

    def first_kept(self, wall_ms: int, now_ms: int, start: int, end: int, upto: int) -> int | None:
        """Where a log of [start, end) begins without the segments that are expired, too many, or below the start; none at or above
        `upto` (the high watermark) goes, and none of an open transaction (R52). None: all stay."""
        parts = self._parts
        believed_ms = parts.believed_ms(wall_ms, now_ms)
        if parts.failure is not None:
            return None
        active, config, limit = parts.active, parts.config, parts.settled(upto)
        count = deletable_count(parts.segments.closed, active, config, believed_ms, start, limit)
        try:
            if active.size and config.delete and is_expired(active, config, believed_ms):
                parts.roll(RollReason.RETENTION, end)
            if not count:
                return None
            first_base = parts.segments[count].base_offset
            ensure_snapshot(parts.fs, parts.directory, first_base, end, parts.derived.producers)
        except OSError as error:
            self._failed(error)
            return None
        return first_base

    def drop_before(self, first_base: int, start: int) -> list[Segment]:
        """The segments in front of the one that begins at `first_base` go, once it is on disk that the log starts at `start`. Returns
        them; none when that could not be written."""
        parts, segments = self._parts, self._parts.segments
        count = segments.position_of(first_base)
        try:
            self._checkpoint_before_deleting(count, start)
        except OSError as error:
            self._failed(error)
            return []
        parts.reader.forget(only_removed=True)
        gone = segments.retire_first(count)
        for segment in gone:
            parts.flushes.forget(segment)
        # By the first batch that is left, not by the start: those in front of it in its segment keep their epochs.
        parts.derived.epochs.truncate_start(segments[0].base_offset)
        return gone

    def _checkpoint_before_deleting(self, count: int, start: int) -> None:
        """S20: where the log starts is on disk before anything goes, so a missing first segment is always damage."""
        try:
            self._parts.checkpoint(start)
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            # S15: retention has to work on a full disk. The caches of what is about to go make room for one small file.
            self._parts.segments.drop_caches(count)
            self._parts.checkpoint(start)

    def _failed(self, error: OSError) -> None:
        if error.errno not in FULL_DISK:
            self._parts.fail(f"retention failed: {error}")
