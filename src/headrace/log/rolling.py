"""Machine: when the active segment has to give way to another."""

from __future__ import annotations

from headrace.log.config import LogConfig
from headrace.log.index import MAX_POSITION, MAX_RELATIVE_OFFSET
from headrace.log.results import RollReason
from headrace.log.segment import Segment

_NEVER_MS = 2**63


class RollLimits:
    """Two numbers for the append path to compare with. Beyond either of them `reason` decides."""

    __slots__ = ("at_ms", "most_bytes")

    def __init__(self) -> None:
        self.most_bytes = 0
        self.at_ms = _NEVER_MS

    def set(self, config: LogConfig, active: Segment) -> None:
        # An entry covers at least one interval, so bytes bound the number of entries.
        index_bytes = config.index_max_entries * config.index_interval_bytes
        self.most_bytes = min(config.segment_bytes, index_bytes, MAX_POSITION)
        self.at_ms = _NEVER_MS
        if active.size:
            self.at_ms = active.created_ms + min(segment_ms(config), config.busy_segment_ms)

    def reason(
        self, config: LogConfig, active: Segment, more_bytes: int, last_offset: int, wall_ms: int
    ) -> RollReason | None:
        size = active.size + more_bytes
        if active.size == 0:
            return None
        if size > config.segment_bytes:
            return RollReason.SIZE
        if last_offset - active.base_offset > MAX_RELATIVE_OFFSET:
            return RollReason.OFFSET_RANGE
        if size > config.index_max_entries * config.index_interval_bytes or size > MAX_POSITION:
            return RollReason.INDEX_FULL
        age_ms = wall_ms - active.created_ms
        if age_ms >= segment_ms(config):
            return RollReason.TIME
        if age_ms >= config.busy_segment_ms:
            if size > config.busy_segment_bytes:
                return RollReason.BUSY
            # From now on it is the smaller size that decides, and the longer time.
            self.most_bytes = min(self.most_bytes, config.busy_segment_bytes)
            self.at_ms = active.created_ms + segment_ms(config)
        return None


def segment_ms(config: LogConfig) -> int:
    """A compacted topic's records must be closed in time to be compacted within the lag that was promised."""
    if config.compact and config.max_compaction_lag_ms >= 0:
        return min(config.segment_ms, config.max_compaction_lag_ms)
    return config.segment_ms
