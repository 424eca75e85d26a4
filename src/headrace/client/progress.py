"""Machine: how far one partition has been worked through, when messages may be finished out of order.

Invariant: everything below `done` is finished, so committing it loses nothing, whatever is still being worked on.
"""

from __future__ import annotations

from collections import deque


class Progress:
    __slots__ = ("_finished", "_working", "done")

    def __init__(self) -> None:
        self._working: deque[int] = deque()
        """Offsets handed out and not yet passed, in order."""
        self._finished: set[int] = set()
        self.done: int | None = None

    def handed_out(self, offset: int) -> None:
        self._working.append(offset)

    def finished(self, offset: int) -> int | None:
        """The offset to commit now, or None when an earlier message is still being worked on."""
        if not self._working or offset < self._working[0]:
            return None  # finished before
        if offset == self._working[0] and not self._finished:  # in order, as nearly always
            self._working.popleft()
            self.done = offset + 1
            return self.done
        self._finished.add(offset)
        moved = False
        while self._working and self._working[0] in self._finished:
            passed = self._working.popleft()
            self._finished.discard(passed)
            self.done = passed + 1
            moved = True
        return self.done if moved else None

    @property
    def unfinished(self) -> int:
        return len(self._working)
