"""Machine: recent events in revision order, bounded, for watchers that pull from a position.

A watcher keeps only its position and asks `since` for what follows, so a slow one costs nothing and can never fill a
queue: it either finds its events here, or is told that they are gone and reads everything anew (R3).
Invariant: every event with revision in [floor, latest] is held, and `since` never splits a revision.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from headrace.coordinator.port import Event, WatchBatch

MAX_BATCH_EVENTS = 1000
"""etcd's own batch while a watcher catches up."""


class EventHistory:
    __slots__ = ("_capacity", "_events", "_revisions", "floor", "latest")

    def __init__(self, *, latest: int, capacity: int, floor: int | None = None) -> None:
        self._capacity = capacity
        self._revisions: list[int] = []
        self._events: list[Sequence[Event]] = []
        self.floor = latest + 1 if floor is None else floor
        """The lowest position a watcher can still start from."""
        self.latest = latest

    def append(self, revision: int, events: Sequence[Event]) -> None:
        """The events of one revision; no events is progress only. Revisions at or below `latest` are repeats."""
        if revision <= self.latest:
            return
        self.latest = revision
        if not events:
            return
        self._revisions.append(revision)
        self._events.append(events)
        if len(self._revisions) >= 2 * self._capacity:
            self.forget_below(self._revisions[-self._capacity])

    def forget_below(self, floor: int) -> None:
        """Compaction: positions below `floor` can no longer be served."""
        if floor <= self.floor:
            return
        self.floor = min(floor, self.latest + 1)
        kept = bisect_left(self._revisions, self.floor)
        del self._revisions[:kept]
        del self._events[:kept]

    def restart(self, latest: int) -> None:
        """Events between the old `latest` and this one are unknown; also the way back when a store was restored."""
        self._revisions.clear()
        self._events.clear()
        self.latest = latest
        self.floor = latest + 1

    def since(self, prefix: str, position: int) -> WatchBatch | None:
        """What follows from `position` on, whole revisions, bounded; None when that is compacted away.

        A batch whose revision is below `position` is empty and means: nothing yet.
        """
        if position < self.floor:
            return None
        found: list[Event] = []
        for index in range(bisect_left(self._revisions, position), len(self._revisions)):
            found.extend(event for event in self._events[index] if event.key.startswith(prefix))
            if len(found) >= MAX_BATCH_EVENTS:
                return WatchBatch(self._revisions[index], found)
        return WatchBatch(self.latest, found)
