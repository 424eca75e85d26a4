"""Kernel: stretches of a line that something is known of. Those that touch become one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

MOST = 16
"""So many apart from each other; beyond that the shortest is forgotten."""


class Extents:
    __slots__ = ("_bounds",)

    def __init__(self) -> None:
        self._bounds: list[int] = []
        """Where they begin and end, in turns, rising."""

    def add(self, begin: int, end: int) -> None:
        bounds = self._bounds
        left, right = bisect_left(bounds, begin), bisect_right(bounds, end)
        # At an even place nothing is known yet, so a stretch begins or ends here; at an odd one it is part of another.
        bounds[left:right] = [begin] * (left % 2 == 0) + [end] * (right % 2 == 0)
        if len(bounds) > 2 * MOST:
            shortest = min(range(0, len(bounds), 2), key=lambda at: bounds[at + 1] - bounds[at])
            del bounds[shortest : shortest + 2]

    def covers(self, begin: int, end: int) -> bool:
        found = bisect_right(self._bounds, begin)
        return found % 2 == 1 and end <= self._bounds[found]
