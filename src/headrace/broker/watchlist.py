"""Driver: which partitions housekeeping has to look at soon, because something has happened in them.

Thousands of partitions stand still while a few are used: whoever moves puts itself here, and nobody else is looked at (F27). Nothing
that matters may depend on it alone: each cleaning pass goes over all partitions anyway.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Watched(Protocol):
    @property
    def has_waiting(self) -> bool: ...

    def expire_waiting(self, now_ms: int) -> None: ...


P = TypeVar("P", bound=Watched)


class Watchlist(Generic[P]):
    __slots__ = ("moved", "waiting")

    def __init__(self) -> None:
        self.moved: dict[P, None] = {}
        """What is durable, committed or deleted has changed since the last checkpoint."""
        self.waiting: dict[P, None] = {}
        """Somebody waits here for a commit, and may have to be told that it took too long."""

    def take_moved(self) -> list[P]:
        moved, self.moved = self.moved, {}
        return list(moved)

    def overdue(self, now_ms: int) -> None:
        """Tell those who waited too long, and forget where nobody waits any more."""
        for partition in list(self.waiting):
            if partition.has_waiting:
                partition.expire_waiting(now_ms)
            else:
                del self.waiting[partition]

    def forget(self, partition: P) -> None:
        self.moved.pop(partition, None)
        self.waiting.pop(partition, None)
