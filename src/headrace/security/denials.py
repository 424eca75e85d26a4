"""Machine: what was refused, or would have been in mode observe; and who came without a name (A52, A54).

Bounded: the least recent goes first. Counts are kept, not requests; `security status` and `acl suggest` are made from them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from headrace.core.ports import Clock
from headrace.core.principals import Principal
from headrace.security.rights import Operation, Resource

MOST = 10_000

K = TypeVar("K")


class Want(NamedTuple):
    """One thing that somebody wanted to do."""

    principal: str
    operation: Operation
    resource: Resource
    name: str
    credential: str = ""
    """The token that was shown; what it lacks, its owner may have."""


class Times:
    __slots__ = ("count", "host", "last_ms")

    def __init__(self) -> None:
        self.count = 0
        self.last_ms = 0
        self.host = ""


class Denials:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wants: OrderedDict[Want, Times] = OrderedDict()
        self._nameless: OrderedDict[tuple[str, str], Times] = OrderedDict()
        self.total = 0
        self.on_want: Callable[[Want, str], None] = lambda want, host: None
        self.on_nameless: Callable[[str, str], None] = lambda host, client_id: None

    def note(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: Resource,
        name: str,
        credential: str = "",
    ) -> None:
        self.total += 1
        want = Want(str(principal), operation, resource, name, credential)
        self._count(self._wants, want, host)
        self.on_want(want, host)

    def nameless(self, host: str, client_id: str) -> None:
        """Somebody uses a door without having said who they are."""
        self._count(self._nameless, (host, client_id[:256]), host)
        self.on_nameless(host, client_id)

    def _count(self, held: OrderedDict[K, Times], key: K, host: str) -> None:
        times = held.get(key)
        if times is None:
            times = held[key] = Times()
            if len(held) > MOST:
                held.popitem(last=False)
        else:
            held.move_to_end(key)
        times.count += 1
        times.last_ms = self._clock.wall_ms()
        times.host = host

    def since(self, wall_ms: int) -> Iterator[tuple[Want, Times]]:
        return ((want, times) for want, times in list(self._wants.items()) if times.last_ms >= wall_ms)

    def nameless_since(self, wall_ms: int) -> Iterator[tuple[str, str, Times]]:
        """Address, client id, how often."""
        return (
            (host, client_id, times)
            for (host, client_id), times in list(self._nameless.items())
            if times.last_ms >= wall_ms
        )

    def clear(self) -> None:
        self._wants.clear()
        self._nameless.clear()
