"""Machine: which Spark partition reads which offsets. Pure: the same ranges and settings give the same plan, always.

Exactly-once sinks lean on that: a replayed micro-batch gets the same tasks with the same rows (spark.md 7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.core.ids import ZERO_UUID, TopicPartition

STREAM_RECORDS_PER_TASK = 50_000
"""A Python task costs about 12 ms (spark.md 2.3), so a small micro-batch is one task over many partitions."""

BATCH_RECORDS_PER_TASK = 4_000_000
"""A batch read splits partitions that are larger than this."""


_FEW_TASKS = 8
"""So many tasks are no burden, whatever they read."""


class OffsetRange(NamedTuple):
    topic: str
    partition: int
    start: int
    end: int
    """Not included."""
    topic_id: bytes = ZERO_UUID
    """Which topic of that name is meant; zero: whichever has it now."""

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start


def ranges_between(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    ids: Mapping[str, bytes] | None = None,
) -> list[OffsetRange]:
    """What lies between two maps of offsets. Partitions that only `end` knows are read from 0."""
    known = ids or {}
    found = [
        OffsetRange(*tp, start.get(tp, 0), stop, known.get(tp.topic, ZERO_UUID))
        for tp, stop in sorted(end.items())
    ]
    return [one for one in found if one.size > 0]


def split(
    ranges: Sequence[OffsetRange], *, min_tasks: int = 0, max_records_per_task: int = BATCH_RECORDS_PER_TASK
) -> list[OffsetRange]:
    """Cut large ranges so that none is larger than allowed and there are at least `min_tasks` of them, if they have so
    many records. No piece is empty and together they are the ranges, in order."""
    total = sum(one.size for one in ranges)
    if total == 0:
        return []
    limit = max(1, max_records_per_task)
    if min_tasks > 0:
        limit = min(limit, max(1, total // min_tasks))
    pieces: list[OffsetRange] = []
    for one in ranges:
        count = -(-one.size // limit)
        for index in range(count):
            start = one.start + one.size * index // count
            pieces.append(one._replace(start=start, end=one.start + one.size * (index + 1) // count))
    return pieces


def pack(pieces: Sequence[OffsetRange], tasks: int) -> list[tuple[OffsetRange, ...]]:
    """Put the pieces into at most `tasks` groups of about equal size; a group keeps them in order."""
    tasks = max(1, min(tasks, len(pieces)))
    groups: list[list[int]] = [[] for _ in range(tasks)]
    loads = [0] * tasks
    for index in sorted(range(len(pieces)), key=lambda index: (-pieces[index].size, index)):
        lightest = loads.index(min(loads))
        groups[lightest].append(index)
        loads[lightest] += pieces[index].size
    return [tuple(pieces[index] for index in sorted(group)) for group in groups if group]


def stream_tasks(ranges: Sequence[OffsetRange], max_records_per_task: int) -> list[tuple[OffsetRange, ...]]:
    """One task for every 50 000 records, but no more than there are pieces."""
    pieces = split(ranges, max_records_per_task=max_records_per_task)
    total = sum(piece.size for piece in pieces)
    return pack(pieces, -(-total // STREAM_RECORDS_PER_TASK)) if pieces else []


def batch_tasks(
    ranges: Sequence[OffsetRange], *, min_tasks: int, max_records_per_task: int
) -> list[tuple[OffsetRange, ...]]:
    """One task for each range as long as they are few or large; many small ones share tasks."""
    pieces = split(ranges, min_tasks=min_tasks, max_records_per_task=max_records_per_task)
    if max_records_per_task < STREAM_RECORDS_PER_TASK:
        # Somebody wants small ones.
        return [(piece,) for piece in pieces]
    total = sum(piece.size for piece in pieces)
    return pack(pieces, max(min_tasks, _FEW_TASKS, -(-total // STREAM_RECORDS_PER_TASK))) if pieces else []


def admit(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], max_records: int
) -> dict[TopicPartition, int]:
    """End offsets of a micro-batch of at most `max_records`, or of one record of each partition where there are more of those: every
    partition gives in proportion to what it has, and one record at least, so that none waits for ever beside larger ones."""
    waiting = {tp: max(0, end - start.get(tp, 0)) for tp, end in latest.items()}
    total = sum(waiting.values())
    ends = {tp: max(start.get(tp, 0), latest[tp]) for tp in latest}
    if total <= max_records:
        return ends
    crowd = sum(1 for count in waiting.values() if count)
    left = max(max_records, crowd)
    # The small ones first: what rounding up gives them is taken from the largest.
    for tp in sorted(waiting, key=lambda tp: (waiting[tp], tp)):
        crowd -= bool(waiting[tp])
        share = min(waiting[tp], max(0, left - crowd), -(-waiting[tp] * max_records // total))
        ends[tp] = start.get(tp, 0) + share
        left -= share
    return ends


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The form in Spark's checkpoint, as Spark's Kafka source has it: {"topic": {"0": 12}}."""
    found: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        found.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in offsets.items()
        if not topic.startswith("#")
        for partition, offset in partitions.items()
    }
