"""Driver: where the logs of a partition's followers begin, as their fetches say; DeleteRecords waits for that.

Records count as deleted once no live replica has them: a follower that still began below would bring them back as the
next leader. Invariant: what is known of a follower was said in the present leadership.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

LOOK_AGAIN_S = 0.5
"""Nobody says here that a follower has died, and then nobody has to wait for it."""


class LowWatermark:
    __slots__ = ("_moved", "_starts")

    def __init__(self) -> None:
        self._starts: dict[int, int] = {}
        self._moved: asyncio.Event | None = None

    def begin_leadership(self) -> None:
        self._starts.clear()

    def heard(self, replica_id: int, log_start: int) -> None:
        if self._starts.get(replica_id) != log_start:
            self._starts[replica_id] = log_start
            if self._moved is not None:
                self._moved.set()

    def has_reached(self, offset: int, followers: Iterable[int]) -> bool:
        return all(self._starts.get(replica, -1) >= offset for replica in followers)

    async def reach(self, offset: int, live_followers: Callable[[], Iterable[int]], seconds: float) -> bool:
        """Whether every live follower begins at `offset` or above within so many seconds."""
        self._moved = moved = self._moved or asyncio.Event()
        deadline = asyncio.get_running_loop().time() + seconds
        while not self.has_reached(offset, live_followers()):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            moved.clear()
            try:
                async with asyncio.timeout(min(left, LOOK_AGAIN_S)):
                    await moved.wait()
            except TimeoutError:
                pass
        return True
