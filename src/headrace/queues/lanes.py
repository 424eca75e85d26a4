"""Machine: what is ready to be delivered, sorted into lanes.

A lane is the messages that share a priority and a group (a FIFO message group or a tenant). A plain queue has one
lane, `MAIN`. Within a lane the lowest offset goes first, so a message that comes back overtakes those that were
never delivered, and order is kept.

Invariant: a lane is in the rotation of its level exactly when it has something to hand out; a lane that holds nothing,
in any state, is forgotten (message groups come and go by the million). FIFO: a lane with a message in flight or
resting hands out nothing (R59).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from headrace.queues.config import DEFAULT_PRIORITY, MAX_PRIORITY, QueueConfig
from headrace.queues.ranges import OffsetSet, Range, Runs

MAIN = 0

Level = OrderedDict[int, "Lane"]


class Lane:
    __slots__ = ("group", "id", "in_flight", "last_due_ms", "level", "ready", "resting", "scheduled")

    def __init__(self, lane_id: int, level: int, group: bytes, ready: OffsetSet | Runs) -> None:
        self.id = lane_id
        self.level = level
        self.group = group
        self.ready = ready
        self.in_flight = 0
        self.resting = 0
        self.scheduled = 0
        self.last_due_ms = 0

    @property
    def unused(self) -> bool:
        return not (self.ready.count or self.in_flight or self.resting or self.scheduled)


class Lanes:
    __slots__ = (
        "_by_key",
        "_free_ids",
        "_priorities",
        "_split",
        "by_id",
        "fifo",
        "levels",
        "main",
        "ready_count",
    )

    def __init__(self, config: QueueConfig) -> None:
        self.fifo = config.fifo
        self._priorities = config.priorities
        self._split = config.fifo or config.fair
        self.levels: list[Level] = [
            OrderedDict() for _ in range(MAX_PRIORITY + 1 if config.priorities else 1)
        ]
        """By priority; one level when the queue has none."""
        self.by_id: dict[int, Lane] = {}
        self._by_key: dict[tuple[int, bytes], Lane] = {}
        self._free_ids: list[int] = []
        self.ready_count = 0
        self.main = self._make(self._level_of(DEFAULT_PRIORITY), b"")

    def __len__(self) -> int:
        return len(self.by_id)

    def all(self) -> list[Lane]:
        return list(self.by_id.values())

    def find(self, priority: int, group: bytes) -> Lane:
        """The lane of such messages, made on first use. Whoever gets one puts something into it before the next
        refresh, or it is forgotten."""
        level = self._level_of(priority)
        key = (level, group if self._split else b"")
        lane = self._by_key.get(key)
        return lane if lane is not None else self._make(*key)

    def held_groups(self) -> list[bytes]:
        """The groups of which there is something, in whatever state."""
        return [lane.group for lane in self.by_id.values() if not lane.unused]

    def holds(self, group: bytes) -> bool:
        return any(
            (lane := self._by_key.get((level, group))) is not None and not lane.unused
            for level in range(len(self.levels))
        )

    def put(self, lane: Lane, first: int, end: int) -> None:
        self.ready_count += lane.ready.add(first, end)
        if self.fifo or lane.id not in self.levels[lane.level]:
            self.refresh(lane)

    def put_all(self, lane: Lane, ranges: Iterable[Range]) -> None:
        for first, end in ranges:
            self.ready_count += lane.ready.add(first, end)
        self.refresh(lane)

    def take(self, lane: Lane, first: int, end: int) -> None:
        self.ready_count -= lane.ready.discard(first, end)

    def lease(self, lane: Lane, first: int, end: int) -> None:
        """[first, end) is handed out; the others of its level go first now."""
        self.ready_count -= lane.ready.discard(first, end)
        lane.in_flight += end - first
        level = self.levels[lane.level]
        if not lane.ready.count or self.fifo or lane.id not in level:
            self.refresh(lane)
        elif len(level) > 1:
            level.move_to_end(lane.id)

    def refresh(self, lane: Lane) -> None:
        """To be called after anything about the lane changed."""
        level = self.levels[lane.level]
        if lane.ready.count and not (self.fifo and (lane.in_flight or lane.resting)):
            if lane.id not in level:
                level[lane.id] = lane
            return
        if lane.id in level:
            del level[lane.id]
        if lane.id != MAIN and lane.unused:
            del self.by_id[lane.id], self._by_key[lane.level, lane.group]
            self._free_ids.append(lane.id)

    def _level_of(self, priority: int) -> int:
        return max(0, min(priority, MAX_PRIORITY)) if self._priorities else 0

    def _make(self, level: int, group: bytes) -> Lane:
        lane_id = self._free_ids.pop() if self._free_ids else len(self.by_id)
        # Message groups are many and small; the lanes of other queues are few and large.
        lane = Lane(lane_id, level, group, Runs() if self.fifo else OffsetSet())
        self.by_id[lane_id] = self._by_key[level, group] = lane
        return lane
