"""Driver: how much room the disk has left. Clients' data is refused before it is full (S15).

The reserve is for everything that must go on then: coordinators' journals, markers, checkpoints, the swap of a
compaction, and replication of what a leader took already.
"""

from __future__ import annotations

import logging

from headrace.core.limits import GIB
from headrace.core.ports import FileSystem
from headrace.core.units import format_size

log = logging.getLogger(__name__)

AUTOMATIC = -1


class DiskRoom:
    __slots__ = ("_fs", "_path", "_reserve_bytes", "free_bytes", "is_low")

    def __init__(self, fs: FileSystem, path: str, reserve_bytes: int = AUTOMATIC) -> None:
        self._fs = fs
        self._path = path
        self._reserve_bytes = reserve_bytes
        self.free_bytes = -1
        """-1: nobody has looked yet."""
        self.is_low = False

    def look(self) -> None:
        """Quick; called several times a second, so that a burst between two looks fits into the reserve."""
        try:
            self.free_bytes = self._fs.free_bytes(self._path)
            is_low = self.free_bytes < self.reserve_bytes
        except OSError as problem:
            log.warning("can't tell how full the disk is: %s", problem)
            return
        if is_low != self.is_low:
            self.is_low = is_low
            left = format_size(self.free_bytes)
            if is_low:
                log.error("the disk has %s left: clients' writes are refused until there is more", left)
            else:
                log.warning("the disk has %s left: writes are taken again", left)

    @property
    def reserve_bytes(self) -> int:
        """Asked each time, because a disk can grow under us."""
        if self._reserve_bytes != AUTOMATIC:
            return self._reserve_bytes
        return min(GIB, self._fs.capacity_bytes(self._path) // 20)

    @property
    def refusal(self) -> str:
        return f"the disk is nearly full: {format_size(self.free_bytes)} left; delete topics or shorten retention"
