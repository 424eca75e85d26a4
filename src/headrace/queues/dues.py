"""Machine: which messages fell due of late, as little as retention has to know of it: the lowest offset of each minute."""

from __future__ import annotations

_MINUTE_MS = 60_000
MAX_MINUTES = 20_160
"""Two weeks. Older ones fall together, so they count for longer than they have to and never for less."""


class Dues:
    __slots__ = ("_lowest",)

    def __init__(self) -> None:
        self._lowest: dict[int, int] = {}

    def note(self, due_ms: int, offset: int) -> None:
        minute = due_ms // _MINUTE_MS
        known = self._lowest.get(minute)
        if known is None or offset < known:
            self._lowest[minute] = offset
        if len(self._lowest) > MAX_MINUTES:
            first, second = sorted(self._lowest)[:2]
            self._lowest[second] = min(self._lowest[second], self._lowest.pop(first))

    def lowest(self, since_ms: int) -> int | None:
        """Of those that fell due since then; what is older is forgotten."""
        minute = since_ms // _MINUTE_MS
        self._lowest = {at: offset for at, offset in self._lowest.items() if at >= minute}
        return min(self._lowest.values(), default=None)

    def clear(self) -> None:
        self._lowest.clear()
