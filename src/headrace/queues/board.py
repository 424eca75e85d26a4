"""Machine: everything one queue shard knows: its queues, their partitions, and when each wants to be woken.

Alarms: each partition knows its own next deadline; the board keeps one heap of (time, partition) over all of them. An
entry counts only while it equals its partition's `alarm_ms`, so setting an earlier alarm just adds an entry.
An alarm may ring too early (then `Rearmed` sets the right one) but never too late.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from headrace.queues.commands import Source
from headrace.queues.config import QueueConfig
from headrace.queues.state import SourceState

_ALARM_SLACK = 1024


class Queue:
    __slots__ = ("config", "paused", "sources")

    def __init__(self, config: QueueConfig) -> None:
        self.config = config
        self.paused = False
        self.sources: dict[Source, None] = {}
        """In the order in which they were opened, so that effects have an order."""


class Board:
    __slots__ = ("_serial", "alarms", "lease_epoch", "partitions", "queues", "wall_offset_ms")

    def __init__(self, lease_epoch: int, wall_offset_ms: int) -> None:
        self.lease_epoch = lease_epoch
        self.wall_offset_ms = wall_offset_ms
        self.queues: dict[str, Queue] = {}
        self.partitions: dict[Source, SourceState] = {}
        self.alarms: list[tuple[int, int, SourceState]] = []
        self._serial = 0

    def open(self, source: Source) -> SourceState:
        queue = self.queues.get(source.queue)
        config = queue.config if queue is not None else QueueConfig()
        partition = self.partitions[source] = SourceState(source, config, self.lease_epoch)
        if queue is not None:
            queue.sources[source] = None
        return partition

    def close(self, source: Source) -> None:
        partition = self.partitions.pop(source, None)
        if partition is not None:
            partition.alarm_ms = None
        queue = self.queues.get(source.queue)
        if queue is not None:
            queue.sources.pop(source, None)

    def arm(self, partition: SourceState) -> None:
        at = partition.next_deadline(self.wall_offset_ms)
        if at is None or (partition.alarm_ms is not None and partition.alarm_ms <= at):
            return
        partition.alarm_ms = at
        self._serial += 1
        heappush(self.alarms, (at, self._serial, partition))
        if len(self.alarms) > 4 * len(self.partitions) + _ALARM_SLACK:
            self.alarms = [entry for entry in self.alarms if entry[2].alarm_ms == entry[0]]
            heapify(self.alarms)

    def rearm(self, partition: SourceState) -> None:
        partition.alarm_ms = None
        self.arm(partition)
        self.tidy()

    def rearm_all(self) -> None:
        """The wall clock was set: every due time is somewhere else on the monotonic clock."""
        self.alarms.clear()
        for partition in self.partitions.values():
            partition.alarm_ms = None
            self.arm(partition)

    def tidy(self) -> None:
        alarms = self.alarms
        while alarms and alarms[0][2].alarm_ms != alarms[0][0]:
            heappop(alarms)

    def next_alarm(self) -> int | None:
        return self.alarms[0][0] if self.alarms else None

    def ringing(self, now_ms: int) -> list[SourceState]:
        """The partitions whose alarm is due, each once; changes nothing."""
        found: dict[Source, SourceState] = {}
        walk = [0]
        while walk:
            at = walk.pop()
            if at >= len(self.alarms) or self.alarms[at][0] > now_ms:
                continue
            at_ms, _, partition = self.alarms[at]
            if partition.alarm_ms == at_ms:
                found[partition.source] = partition
            walk += (2 * at + 2, 2 * at + 1)
        return list(found.values())
