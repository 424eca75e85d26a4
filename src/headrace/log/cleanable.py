"""Machine: whether a log is worth compacting now, and how much of it (kafka.md 5.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.log.config import LogConfig
from headrace.log.segment import Segment


class Cleanable(NamedTuple):
    segments: list[Segment]
    dirty_from: int
    upto: int


def find_cleanable(
    closed: Sequence[Segment],
    active: Segment,
    config: LogConfig,
    compacted_to: int,
    start_offset: int,
    limit: int,
    believed_ms: int,
    *,
    forced: bool,
) -> Cleanable | None:
    """The closed segments that end at or below `limit` and are old enough, when enough of them is dirty."""
    segments: list[Segment] = []
    upto = start_offset
    following = [*closed[1:], active]
    for segment, successor in zip(closed, following, strict=False):
        young = believed_ms - segment.appended_ms < config.min_compaction_lag_ms
        if successor.base_offset > limit or young:
            break
        segments.append(segment)
        upto = successor.base_offset
    dirty_from = max(compacted_to, start_offset)
    dirty = [segment for segment in segments if segment.next_offset > dirty_from]
    if upto <= dirty_from and not forced:
        return None
    total_bytes = sum(segment.size for segment in segments)
    dirty_bytes = sum(segment.size for segment in dirty)
    if not segments or total_bytes == 0:
        return None
    overdue = (
        config.max_compaction_lag_ms >= 0
        and bool(dirty)
        and believed_ms - dirty[0].created_ms > config.max_compaction_lag_ms
    )
    if forced or overdue or dirty_bytes / total_bytes > config.min_cleanable_dirty_ratio:
        return Cleanable(segments, min(dirty_from, upto), upto)
    return None
