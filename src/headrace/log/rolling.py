"""Machine: when the active segment has to give way to another."""

from __future__ import annotations

import zlib

from headrace.log.config import LogConfig
from headrace.log.index import ENTRY_BYTES, MAX_POSITION, MAX_RELATIVE_OFFSET
from headrace.log.results import RollReason
from headrace.log.segment import Segment
from headrace.records.batch import HEADER_BYTES

_NEVER_MS = 2**63


class RollLimits:
    """Two numbers for the append path to compare with. Beyond either of them `reason` decides."""

    __slots__ = ("at_ms", "most_bytes")

    def __init__(self) -> None:
        self.most_bytes = 0
        self.at_ms = _NEVER_MS

    def set(self, config: LogConfig, active: Segment) -> None:
        self.most_bytes = min(config.segment_bytes, _indexed_bytes(config), MAX_POSITION)
        self.at_ms = _NEVER_MS
        if active.size:
            self.at_ms = active.created_ms + min(_segment_ms(config, active), config.busy_segment_ms)

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
        if size > min(_indexed_bytes(config), MAX_POSITION):
            return RollReason.INDEX_FULL
        age_ms = wall_ms - active.created_ms
        if age_ms >= _segment_ms(config, active):
            return RollReason.TIME
        if age_ms >= config.busy_segment_ms:
            if size > config.busy_segment_bytes:
                return RollReason.BUSY
            # From now on it is the smaller size that decides, and the longer time.
            self.most_bytes = min(self.most_bytes, config.busy_segment_bytes)
            self.at_ms = active.created_ms + _segment_ms(config, active)
        return None


def _indexed_bytes(config: LogConfig) -> int:
    """An entry covers at least one interval, and one batch, so bytes bound the number of entries."""
    return config.index_max_bytes // ENTRY_BYTES * max(config.index_interval_bytes, HEADER_BYTES)


def _segment_ms(config: LogConfig, active: Segment) -> int:
    """Jitter: partitions that were filled together do not roll together. The place of a segment is its own dice, so that it
    is thrown once. A compacted topic's records must be closed in time to be compacted within the lag that was promised."""
    longest = config.segment_ms
    if config.segment_jitter_ms > 0:
        longest -= zlib.crc32(active.path.encode()) % (min(config.segment_jitter_ms, longest) + 1)
    if config.compact and config.max_compaction_lag_ms >= 0:
        return min(longest, config.max_compaction_lag_ms)
    return longest
