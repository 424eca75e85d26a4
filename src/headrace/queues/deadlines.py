"""Machine: what one source holds until a moment on the monotonic clock: leases, rests, moves to be tried again.

Most leases are acknowledged long before they run out, so nothing is ever searched in the heap: a holder that let go
of its last message (`held == 0`) is skipped. Dead entries at the top are dropped at once and the heap is swept when
they outnumber the living, so that twelve-hour leases acknowledged within a second do not pile up.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from headrace.queues.commands import DeathReason

_SWEEP_AT = 1024


class Lease:
    """Messages of one lane that were received together. The truth is `Partition.leases`: an offset in [first, end) is
    under this lease when it maps to it there."""

    __slots__ = (
        "deadline_ms", "delivery", "durable", "end", "epoch", "first", "first_received_ms", "held", "lane", "owner",
        "received_ms", "visibility_ms",
    )  # fmt: skip

    def __init__(
        self, first: int, end: int, held: int, delivery: int, *, epoch: int, owner: str, lane: int, now_ms: int,
        visibility_ms: int, received_ms: int, first_received_ms: int, durable: bool,
    ) -> None:  # fmt: skip
        self.first = first
        self.end = end
        self.held = held
        self.delivery = delivery
        self.epoch = epoch
        self.owner = owner
        self.lane = lane
        self.deadline_ms = now_ms + visibility_ms
        self.visibility_ms = visibility_ms
        self.received_ms = received_ms
        self.first_received_ms = first_received_ms
        self.durable = durable


NO_EPOCH = -1
"""Matches no receipt."""


class RetryEntry:
    """A message that was delivered before and is not in flight. `held` is 1 while it rests, 0 when it is available."""

    __slots__ = (
        "deadline_ms",
        "delay_ms",
        "deliveries",
        "epoch",
        "first_received_ms",
        "held",
        "lane",
        "offset",
    )

    def __init__(
        self,
        offset: int,
        deliveries: int,
        *,
        delay_ms: int,
        now_ms: int,
        first_received_ms: int,
        epoch: int,
        lane: int,
    ) -> None:
        self.offset = offset
        self.deliveries = deliveries
        self.delay_ms = delay_ms
        self.deadline_ms = now_ms + delay_ms
        self.first_received_ms = first_received_ms
        self.epoch = epoch
        self.lane = lane
        self.held = 1 if delay_ms > 0 else 0


class Dying:
    """A message on its way to the dead letters. `held` is 1 while a failed move waits to be tried again."""

    __slots__ = ("deadline_ms", "deliveries", "detail", "held", "offset", "reason")

    def __init__(self, offset: int, deliveries: int, reason: DeathReason, detail: str) -> None:
        self.offset = offset
        self.deliveries = deliveries
        self.reason = reason
        self.detail = detail
        self.deadline_ms = 0
        self.held = 0


Holder = Lease | RetryEntry | Dying


class QueueDeadlines:
    __slots__ = ("_serial", "_sweep_at", "heap")

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, Holder]] = []
        self._serial = 0
        self._sweep_at = _SWEEP_AT

    def __len__(self) -> int:
        return len(self.heap)

    def push(self, holder: Holder) -> None:
        self._serial += 1  # equal deadlines keep their order, and holders are never compared
        heappush(self.heap, (holder.deadline_ms, self._serial, holder))
        if len(self.heap) > self._sweep_at:
            self.heap = [entry for entry in self.heap if self._alive(entry)]
            heapify(self.heap)
            self._sweep_at = max(_SWEEP_AT, 2 * len(self.heap))

    def tidy(self) -> None:
        heap = self.heap
        while heap:
            deadline_ms, _, holder = heap[0]
            if holder.held > 0 and holder.deadline_ms == deadline_ms:
                return
            heappop(heap)

    def due(self, now_ms: int, limit: int) -> list[Holder]:
        """Some `limit` of the holders whose time is up; changes nothing."""
        heap = self.heap
        found: list[Holder] = []
        walk = [0]
        while walk and len(found) < limit:
            at = walk.pop()
            if at >= len(heap) or heap[at][0] > now_ms:
                continue
            if self._alive(heap[at]):
                found.append(heap[at][2])
            walk += (2 * at + 1, 2 * at + 2)
        return found

    def clear(self) -> None:
        self.heap.clear()

    @staticmethod
    def _alive(entry: tuple[int, int, Holder]) -> bool:
        holder = entry[2]
        return holder.held > 0 and holder.deadline_ms == entry[0]
