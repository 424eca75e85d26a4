"""Machine: who may connect (X14) and how many request bytes may be held at once (X9).

Invariant: `used_bytes` is what admitted requests have reserved; it exceeds the limit only when a single request
alone is larger than the limit. Waiters are served in order, so a large request is not starved by small ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class ConnectionGate:
    """Counts connections in total and per address; loopback keeps a few slots so that an operator gets in."""

    __slots__ = ("_by_host", "_max_per_host", "_max_total", "_reserved", "total")

    def __init__(self, max_total: int, max_per_host: int, reserved_for_loopback: int) -> None:
        self._max_total = max_total
        self._max_per_host = max_per_host
        self._reserved = reserved_for_loopback
        self._by_host: dict[str, int] = {}
        self.total = 0

    def has_room_for_one_more_of(self, host: str) -> bool:
        """False: it has as many as one address may have, so it is one of its own that has to go."""
        return self._by_host.get(host, 0) < self._max_per_host

    def admit(self, host: str) -> bool:
        limit = self._max_total
        if not _is_loopback(host):
            limit -= self._reserved
        held = self._by_host.get(host, 0)
        if self.total >= limit or held >= self._max_per_host:
            return False
        self.total += 1
        self._by_host[host] = held + 1
        return True

    def release(self, host: str) -> None:
        self.total -= 1
        held = self._by_host[host] - 1
        if held:
            self._by_host[host] = held
        else:
            # Forget the address, or a scan of addresses would grow this dict for ever.
            del self._by_host[host]


def _is_loopback(host: str) -> bool:
    return host.startswith("127.") or host in ("::1", "")


class BudgetTicket:
    """A place in the queue for bytes."""

    __slots__ = ("admitted", "byte_count", "is_cancelled")

    def __init__(self, byte_count: int, admitted: Callable[[], None]) -> None:
        self.byte_count = byte_count
        self.admitted = admitted
        self.is_cancelled = False


class BodyBudget:
    """Bytes of request bodies in flight, reserved when the headers are read and before the body is."""

    __slots__ = ("_limit", "used_bytes", "waiting")

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self.waiting: deque[BudgetTicket] = deque()
        self.used_bytes = 0

    def reserve(self, byte_count: int) -> bool:
        """True when the bytes were reserved now; False when the caller has to wait."""
        if self.waiting or not self._fits(byte_count):
            return False
        self.used_bytes += byte_count
        return True

    def wait(self, byte_count: int, admitted: Callable[[], None]) -> BudgetTicket:
        """`admitted` is called once the bytes are reserved for this ticket."""
        ticket = BudgetTicket(byte_count, admitted)
        self.waiting.append(ticket)
        return ticket

    def cancel(self, ticket: BudgetTicket) -> None:
        ticket.is_cancelled = True
        self._admit_waiting()

    def release(self, byte_count: int) -> None:
        self.used_bytes -= byte_count
        if self.waiting:
            self._admit_waiting()

    def _fits(self, byte_count: int) -> bool:
        # One request larger than the whole budget runs alone instead of never.
        return self.used_bytes + byte_count <= self._limit or self.used_bytes == 0

    def _admit_waiting(self) -> None:
        while self.waiting:
            ticket = self.waiting[0]
            if not ticket.is_cancelled:
                if not self._fits(ticket.byte_count):
                    return
                self.used_bytes += ticket.byte_count
            self.waiting.popleft()
            if not ticket.is_cancelled:
                ticket.admitted()
