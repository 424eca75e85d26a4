"""Driver: who hears that the high watermark of a partition has moved. One that raises hurts itself only (F16).

Group commit runs through here: an exception that got out would stop it for every partition. So it stops here, and the
listener's owner is told that it has missed something: a shard, whose memory can't be trusted then, loads again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.broker.runtime import Runtime
from headrace.core.ids import TopicPartition

Listener = Callable[[int], None]
Broken = Callable[[Exception], None]

WHERE = "commit listener"


class CommitListeners:
    __slots__ = ("_entries", "_runtime", "_tp")

    def __init__(self, runtime: Runtime, tp: TopicPartition) -> None:
        self._runtime = runtime
        self._tp = tp
        self._entries: list[tuple[Listener, Broken | None]] = []

    def append(self, listener: Listener, on_broken: Broken | None = None) -> None:
        self._entries.append((listener, on_broken))

    def remove(self, listener: Listener) -> None:
        """Once, as a list does; nothing happens when it is not there (any more)."""
        for entry in self._entries:
            if entry[0] == listener:
                self._entries.remove(entry)
                return

    def __contains__(self, listener: object) -> bool:
        return any(entry[0] == listener for entry in self._entries)

    def __iter__(self) -> Iterator[Listener]:
        return iter([listener for listener, _ in self._entries])

    def __len__(self) -> int:
        return len(self._entries)

    def tell(self, offset: int) -> None:
        for listener, on_broken in tuple(self._entries):
            try:
                listener(offset)
            except Exception as problem:
                self._runtime.unexpected(WHERE, problem, str(self._tp))
                if on_broken is not None:
                    self._tell_owner(on_broken, problem)

    def _tell_owner(self, on_broken: Broken, problem: Exception) -> None:
        try:
            on_broken(problem)
        except Exception as another:
            self._runtime.unexpected(WHERE, another, str(self._tp))
