"""Machine: the settings that rule groups, with Kafka's names in the field docs and Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headrace.core.limits import MAX_GROUP_MEMBERS, MAX_OFFSET_METADATA_BYTES

_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS


class Migration(Enum):
    """group.consumer.migration.policy: which way a group with members may change its protocol."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"


@dataclass(frozen=True, slots=True)
class StreamsSettings:
    """What can be set for each streams group by itself; without a word for the group, what the broker says."""

    session_timeout_ms: int = 45_000
    """streams.session.timeout.ms"""
    heartbeat_interval_ms: int = 5_000
    """streams.heartbeat.interval.ms"""
    standby_replicas: int = 0
    """streams.num.standby.replicas"""
    initial_rebalance_delay_ms: int = 3_000
    """streams.initial.rebalance.delay.ms: how long the first assignment waits for more members."""
    assignment_interval_ms: int = 1_000
    """streams.assignment.interval.ms: how soon after an assignment the next may follow."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms"""
    max_session_timeout_ms: int = 30 * _MINUTE_MS
    """group.max.session.timeout.ms"""
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms: how long the first generation waits for more members."""
    new_member_join_timeout_ms: int = 5 * _MINUTE_MS
    """A member that never finished a join is forgotten after this long, however long its session timeout is."""
    max_size: int = MAX_GROUP_MEMBERS
    """group.max.size; also bounds the member ids that were reserved and not used yet (KIP-394)."""
    offsets_retention_ms: int = 7 * _DAY_MS
    """offsets.retention.minutes, counted from the moment the group became empty."""
    cleanup_interval_ms: int = 10 * _MINUTE_MS
    """offsets.retention.check.interval.ms: an empty group without offsets is forgotten after this long."""
    max_offset_metadata_bytes: int = MAX_OFFSET_METADATA_BYTES
    """offset.metadata.max.bytes"""

    consumer_session_timeout_ms: int = 45_000
    """group.consumer.session.timeout.ms: in KIP-848 the coordinator decides, not the client."""
    consumer_heartbeat_interval_ms: int = 5_000
    """group.consumer.heartbeat.interval.ms"""
    consumer_max_size: int = MAX_GROUP_MEMBERS
    """group.consumer.max.size"""
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """group.consumer.assignors; the first is the default."""
    consumer_migration: Migration = Migration.BIDIRECTIONAL
    """group.consumer.migration.policy"""

    share_session_timeout_ms: int = 45_000
    """group.share.session.timeout.ms"""
    share_heartbeat_interval_ms: int = 5_000
    """group.share.heartbeat.interval.ms"""
    share_max_size: int = 200
    """group.share.max.size"""

    streams: StreamsSettings = StreamsSettings()
    """group.streams.*"""
    streams_max_size: int = MAX_GROUP_MEMBERS
    """group.streams.max.size"""
