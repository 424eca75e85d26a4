"""Kernel: the settings that rule one log. Frozen; a change of topic config replaces the whole value."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.limits import GIB, KIB, MIB

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Defaults are Kafka's where Kafka has the setting. -1 means no limit."""

    segment_bytes: int = GIB
    segment_ms: int = 7 * DAY_MS
    """A segment older than this (since its first append) rolls at the next append or tick."""
    segment_jitter_ms: int = 0
    """Up to so much earlier, each segment by an amount of its own."""
    busy_segment_ms: int = HOUR_MS
    busy_segment_bytes: int = 64 * MIB
    """A segment of at least this many bytes already rolls after `busy_segment_ms`: a busy topic rolls hourly."""
    index_interval_bytes: int = 4 * KIB
    index_max_bytes: int = 10 * MIB
    cache_interval_bytes: int = 64 * MIB
    """How much of the active segment a restart after a crash may have to read again (S25)."""

    delete: bool = True
    """cleanup.policy has `delete`."""
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = UNLIMITED
    timestamp_skew_ms: int = HOUR_MS
    """How far beyond its append a record's own timestamp may keep a segment alive (S23)."""
    file_delete_delay_ms: int = MINUTE_MS

    compact: bool = False
    """cleanup.policy has `compact`."""
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = UNLIMITED
    min_cleanable_dirty_ratio: float = 0.5
    delete_retention_ms: int = DAY_MS
    compaction_map_bytes: int = 128 * MIB
    """The most memory one compaction may hold keys in; beyond it, it goes in several passes."""

    log_append_time: bool = False
    """message.timestamp.type=LogAppendTime."""
