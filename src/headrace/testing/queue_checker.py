"""Machine: did a queue lose, invent, or hand out messages when it must not?

First the total-queue rule: what was enqueued for sure is dequeued, and nothing else is. Then our own: early
redelivery, resurrection, FIFO violation, early delivery, dedup violation (correctness.md section 6). A client knows
only when it asked and when it was answered, so every rule counts in the queue's favour inside that gap: what is
reported did happen.

What excuses a queue, and no more than that:
- Two receives of a message that overlap: either may have been first, unless the queue's delivery numbers say which.
- A delete that came too late: its answer is a success and it deletes nothing when a later delivery was out before (R56). So
  there has to be one that may have been: seen, or missing in the delivery numbers. No later delivery can have been out while
  the delete's own lease surely ran.
- Clocks that are wrong (`Clocks`): only from when they are, and leases, which need no wall clock (R58), only by as much as a
  clock runs too fast.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from headrace.testing.history import OperationOutcome

Message = Hashable
"""Every enqueued body is unique, so a body found in a receive names its send."""

DEDUP_WINDOW_MS = 5 * 60 * 1000
_NEVER_MS = 1 << 62


@dataclass(slots=True)
class QueueOperation:
    """Begun and ended in real time; `begun` and `ended` are places among all events."""

    queue: str
    invoked_ms: int
    begun: int
    outcome: OperationOutcome = OperationOutcome.INFO
    completed_ms: int = 0
    ended: int | None = None


@dataclass(slots=True)
class Enqueue(QueueOperation):
    message: Message = None
    delay_ms: int = 0
    group: str | None = None
    dedup_id: str | None = None
    behind: Message = None
    """The entry of the same batch and group that stands before it."""


class DequeuedMessage(NamedTuple):
    message: Message
    receipt: str
    number: int = 0
    """How often it has been delivered, if the queue says so: a gap tells of an answer that never arrived."""


@dataclass(slots=True)
class Dequeue(QueueOperation):
    visibility_ms: int = 0
    deliveries: Sequence[DequeuedMessage] = ()
    """In the order of the answer; empty unless it ended OK."""


@dataclass(slots=True)
class ChangeVisibility(QueueOperation):
    message: Message = None
    receipt: str = ""
    visibility_ms: int = 0
    """Zero gives the message back."""


@dataclass(slots=True)
class Remove(QueueOperation):
    message: Message = None
    receipt: str = ""


@dataclass(slots=True)
class Discard(QueueOperation):
    """The message left the queue by another door: dead letters, purge, retention."""

    message: Message = None
    seen_late: bool = False
    """It may have left any time after its last lease: the other door was looked at only now."""


@dataclass(slots=True)
class QueueHistory:
    operations: list[QueueOperation] = field(default_factory=list)
    _event_count: int = 0

    def _next_event(self) -> int:
        self._event_count += 1
        return self._event_count

    def enqueue(self, queue: str, message: Message, now_ms: int, *, delay_ms: int = 0, group: str | None = None,
                dedup_id: str | None = None, behind: Message = None) -> Enqueue:  # fmt: skip
        operation = Enqueue(queue, now_ms, self._next_event(), message=message, delay_ms=delay_ms, group=group,
                            dedup_id=dedup_id, behind=behind)  # fmt: skip
        self.operations.append(operation)
        return operation

    def receive(self, queue: str, visibility_ms: int, now_ms: int) -> Dequeue:
        operation = Dequeue(queue, now_ms, self._next_event(), visibility_ms=visibility_ms)
        self.operations.append(operation)
        return operation

    def change_visibility(
        self, queue: str, delivery: DequeuedMessage, visibility_ms: int, now_ms: int
    ) -> ChangeVisibility:
        operation = ChangeVisibility(queue, now_ms, self._next_event(), message=delivery.message,
                                     receipt=delivery.receipt, visibility_ms=visibility_ms)  # fmt: skip
        self.operations.append(operation)
        return operation

    def delete(self, queue: str, delivery: DequeuedMessage, now_ms: int) -> Remove:
        operation = Remove(
            queue, now_ms, self._next_event(), message=delivery.message, receipt=delivery.receipt
        )
        self.operations.append(operation)
        return operation

    def discard(self, queue: str, message: Message, now_ms: int, *, seen_late: bool = False) -> None:
        operation = Discard(queue, now_ms, self._next_event(), message=message, seen_late=seen_late)
        self.operations.append(operation)
        self.end(operation, OperationOutcome.OK, now_ms)

    def end(
        self,
        operation: QueueOperation,
        outcome: OperationOutcome,
        now_ms: int,
        deliveries: Sequence[DequeuedMessage] = (),
    ) -> None:
        """An operation that is never ended has an unknown outcome."""
        operation.outcome = outcome
        operation.completed_ms = now_ms
        operation.ended = self._next_event()
        if isinstance(operation, Dequeue) and outcome is OperationOutcome.OK:
            operation.deliveries = tuple(deliveries)


class Clocks(NamedTuple):
    """How far the clocks of the queue's brokers can be trusted."""

    true_until_ms: int | None = None
    """From then on a wall clock may say anything, so delays and deduplication may be off. None: they are always right."""
    fastest: float = 1.0
    """From then on a monotonic clock may run so many times too fast, and a lease may be so many times shorter."""

    def are_true(self, at_ms: int) -> bool:
        return self.true_until_ms is None or at_ms < self.true_until_ms

    def earliest_ms(self, from_ms: int, duration_ms: int) -> int:
        """When a monotonic clock can have counted so long a time, at the earliest."""
        until_ms = from_ms + duration_ms
        if self.true_until_ms is None or until_ms <= self.true_until_ms:
            return until_ms
        true_ms = max(from_ms, self.true_until_ms)
        return int(true_ms + (until_ms - true_ms) / self.fastest)


class QueueAnomaly(NamedTuple):
    name: str
    message: Message
    detail: dict[str, Any]


@dataclass(slots=True)
class QueueReport:
    anomalies: list[QueueAnomaly] = field(default_factory=list)
    """All forbidden."""
    duplicated: int = 0
    """Deliveries beyond the first: allowed, and worth watching."""
    recovered: int = 0
    """Delivered although the send's outcome was unknown."""
    deduplicated: int = 0

    @property
    def is_valid(self) -> bool:
        return not self.anomalies

    def names(self) -> set[str]:
        return {anomaly.name for anomaly in self.anomalies}

    def describe(self, limit: int = 10) -> str:
        lines = [f"{'valid' if self.is_valid else 'INVALID'}: {len(self.anomalies)} anomalies"]
        lines.extend(f"  {name}: {message!r} {detail}" for name, message, detail in self.anomalies[:limit])
        return "\n".join(lines)


class _Handed(NamedTuple):
    """One delivery with the receive it came in."""

    receive: Dequeue
    place: int
    delivery: DequeuedMessage

    @property
    def ended(self) -> int:
        assert self.receive.ended is not None
        return self.receive.ended

    def may_be_before(self, other: _Handed) -> bool:
        """Whether the queue may have handed it out before the other."""
        if self.ended < other.receive.begun or other.ended < self.receive.begun:
            return self.ended < other.receive.begun
        mine, its = self.delivery.number, other.delivery.number
        return mine <= its if mine and its else True


class _View:
    """The history by message."""

    def __init__(self, operations: Sequence[QueueOperation], clocks: Clocks) -> None:
        self.clocks = clocks
        self.enqueues: dict[Message, Enqueue] = {}
        self.handed: dict[Message, list[_Handed]] = {}
        self.deletes: dict[Message, list[Remove]] = {}
        self.discards: dict[Message, list[Discard]] = {}
        self.changes: dict[str, list[ChangeVisibility]] = {}
        self.receives: list[Dequeue] = []
        for operation in operations:
            if isinstance(operation, Enqueue):
                self.enqueues[operation.message] = operation
            elif isinstance(operation, Dequeue) and operation.ended is not None:
                self.receives.append(operation)
            elif isinstance(operation, Remove):
                self.deletes.setdefault(operation.message, []).append(operation)
            elif isinstance(operation, Discard):
                self.discards.setdefault(operation.message, []).append(operation)
            elif isinstance(operation, ChangeVisibility):
                self.changes.setdefault(operation.receipt, []).append(operation)
        for receive in sorted(self.receives, key=lambda receive: receive.ended or 0):
            for place, delivery in enumerate(receive.deliveries):
                self.handed.setdefault(delivery.message, []).append(_Handed(receive, place, delivery))


def check_queue(
    operations: Sequence[QueueOperation],
    *,
    remaining: Sequence[Message] = (),
    resurrection_window_ms: int = 0,
    dedup_window_ms: int = DEDUP_WINDOW_MS,
    drained: bool = False,
    clocks: Clocks = Clocks(),  # noqa: B008
) -> QueueReport:
    """`remaining` are messages found in the queue at the end without receiving them. `drained`: everything that was
    there at the end was received and deleted, so whatever is gone must have been deleted by somebody who might."""
    view = _View(operations, clocks)
    report = QueueReport()
    _check_total(view, report, frozenset(remaining), dedup_window_ms)
    searches: tuple[Callable[[], Iterator[QueueAnomaly]], ...] = (
        lambda: _early_redeliveries(view),
        lambda: _resurrections(view, resurrection_window_ms),
        lambda: _fifo_violations(view),
        lambda: _early_deliveries(view),
        lambda: _dedup_violations(view, dedup_window_ms),
    )
    for search in searches:
        report.anomalies.extend(search())
    if drained:
        report.anomalies.extend(_vanished(view, frozenset(remaining)))
    return report


def _check_total(view: _View, report: QueueReport, remaining: frozenset[Message], window_ms: int) -> None:
    for message, enqueue in view.enqueues.items():
        is_seen = message in view.handed or message in view.discards or message in remaining
        if enqueue.outcome is OperationOutcome.INFO and is_seen:
            report.recovered += 1
        if is_seen or enqueue.outcome is not OperationOutcome.OK:
            continue
        if _was_deduplicated(view, enqueue, window_ms):
            report.deduplicated += 1
        else:
            report.anomalies.append(QueueAnomaly("lost", message, {"queue": enqueue.queue}))
    for message, handed in view.handed.items():
        report.duplicated += len(handed) - 1
        attempt = view.enqueues.get(message)
        if attempt is None or attempt.outcome is OperationOutcome.FAIL:
            detail = {"why": "never sent" if attempt is None else "its send failed"}
            report.anomalies.append(QueueAnomaly("unexpected", message, detail))


def _was_deduplicated(view: _View, enqueue: Enqueue, window_ms: int) -> bool:
    """A send with the same id, not longer ago than the window, may stand for this one if it was delivered."""
    if enqueue.dedup_id is None:
        return False
    for other in view.enqueues.values():
        is_twin = (
            other is not enqueue
            and other.queue == enqueue.queue
            and other.dedup_id == enqueue.dedup_id
            and other.outcome is not OperationOutcome.FAIL
            and (other.message in view.handed or other.message in view.discards)
        )
        if not is_twin:
            continue
        (mine, my_end), (its, its_end) = _written_between_ms(view, enqueue), _written_between_ms(view, other)
        if not view.clocks.are_true(max(my_end, its_end)) or max(mine - its_end, its - my_end) <= window_ms:
            return True
    return False


def _written_between_ms(view: _View, enqueue: Enqueue) -> tuple[int, int]:
    """When a message came into the queue, at the earliest and at the latest: what was delivered was there before, and a send
    that nobody answered may arrive late."""
    ends_ms = [one.receive.completed_ms for one in view.handed.get(enqueue.message, ())]
    if enqueue.outcome is OperationOutcome.OK:
        ends_ms.append(enqueue.completed_ms)
    return enqueue.invoked_ms, min(ends_ms, default=_NEVER_MS)


def _early_redeliveries(view: _View) -> Iterator[QueueAnomaly]:
    for message, handed in view.handed.items():
        for one, other in pairwise(_in_order(handed)):
            orders = [
                (first, second)
                for first, second in ((one, other), (other, one))
                if first.may_be_before(second)
            ]
            early = [
                (first, second, held_until_ms)
                for first, second in orders
                if second.receive.completed_ms < (held_until_ms := _held_until_ms(view, first, second))
            ]
            if len(early) == len(orders):  # whichever was first
                first, second, held_until_ms = early[0]
                detail = {
                    "held_until_ms": held_until_ms,
                    "delivered_again_by_ms": second.receive.completed_ms,
                    "receipts": (first.delivery.receipt, second.delivery.receipt),
                }
                yield QueueAnomaly("early-redelivery", message, detail)


def _in_order(handed: list[_Handed]) -> list[_Handed]:
    """As the queue handed them out, as far as that can be known; by their answers where it can not."""
    in_order: list[_Handed] = []
    for one in handed:
        place = len(in_order)
        while place and not in_order[place - 1].may_be_before(one):
            place -= 1
        in_order.insert(place, one)
    return in_order


def _held_until_ms(view: _View, handed: _Handed, other: _Handed | None) -> int:
    """The earliest moment at which the lease can have ended before `other` (or somebody unseen) had the message, as far as
    clients can know. An older receipt may prolong a newer lease (F39), so a change that was answered while the other receive
    was under way may have found the message in its hands: it can only have made the older lease shorter."""
    earliest_ms = view.clocks.earliest_ms
    until_ms = earliest_ms(handed.receive.invoked_ms, handed.receive.visibility_ms)
    for change in view.changes.get(handed.delivery.receipt, ()):
        if change.outcome is OperationOutcome.FAIL or (other is not None and change.begun > other.ended):
            continue
        changed_ms = earliest_ms(change.invoked_ms, change.visibility_ms)
        is_sure = (
            other is not None
            and change.outcome is OperationOutcome.OK
            and change.ended is not None
            and change.ended < other.receive.begun
        )
        until_ms = changed_ms if is_sure else min(until_ms, changed_ms)
    return until_ms


def _resurrections(view: _View, window_ms: int) -> Iterator[QueueAnomaly]:
    for message, deletes in view.deletes.items():
        handed = view.handed.get(message, [])
        for delete in deletes:
            own = next((one for one in handed if one.delivery.receipt == delete.receipt), None)
            if own is None or delete.outcome is not OperationOutcome.OK or delete.ended is None:
                continue
            later = [
                one
                for one in handed
                if one.receive.begun > delete.ended
                and one.receive.invoked_ms - delete.completed_ms >= window_ms
            ]
            if later and not _may_be_too_late(view, delete, own, later):
                detail = {"deleted_ms": delete.completed_ms, "received_ms": later[0].receive.invoked_ms}
                yield QueueAnomaly("resurrection", message, detail)
    for message, discards in view.discards.items():
        gone = min(discard.ended or discard.begun for discard in discards)
        for one in view.handed.get(message, ()):
            if one.receive.begun > gone:
                yield QueueAnomaly(
                    "resurrection", message, {"left by": "another door", "at_ms": one.receive.invoked_ms}
                )
                break


def _may_be_too_late(view: _View, delete: Remove, own: _Handed, later: list[_Handed]) -> bool:
    """Whether another delivery may have been out before the delete. A handle of an older one deletes nothing, although the
    answer is a success (R56)."""
    assert delete.ended is not None
    for one in view.handed[delete.message]:
        may_be_between = one is not own and one.receive.begun < delete.ended and own.may_be_before(one)
        until_ms = min(one.receive.completed_ms, delete.completed_ms)
        if may_be_between and until_ms >= _held_until_ms(view, own, one):
            return True
    number = own.delivery.number
    if not number or min(one.delivery.number for one in later) <= number + 1:
        return False
    return delete.completed_ms >= _held_until_ms(view, own, None)  # nobody saw the one in between


def _vanished(view: _View, remaining: frozenset[Message]) -> Iterator[QueueAnomaly]:
    """Handed out, never deleted by a receipt that could have been the current one, and not there any more (R56)."""
    for message, handed in view.handed.items():
        if message in view.discards or message in remaining:
            continue
        deletes = [one for one in view.deletes.get(message, ()) if one.outcome is not OperationOutcome.FAIL]
        if all(_is_surely_stale(delete, handed) for delete in deletes):
            receipts = [delete.receipt for delete in deletes]
            yield QueueAnomaly("vanished", message, {"deliveries": len(handed), "stale_deletes": receipts})


def _is_surely_stale(delete: Remove, handed: list[_Handed]) -> bool:
    """A later delivery was in somebody's hands before this delete began."""
    own = [one for one in handed if one.delivery.receipt == delete.receipt]
    return bool(own) and any(
        one.delivery.receipt != delete.receipt and not one.may_be_before(own[-1]) and one.ended < delete.begun
        for one in handed
    )


def _fifo_violations(view: _View) -> Iterator[QueueAnomaly]:
    groups: dict[tuple[str, str], list[Enqueue]] = {}
    for enqueue in view.enqueues.values():
        if enqueue.group is not None and enqueue.outcome is OperationOutcome.OK:
            groups.setdefault((enqueue.queue, enqueue.group), []).append(enqueue)
    for members in groups.values():
        for later in members:
            for handed in view.handed.get(later.message, ()):
                for earlier in members:
                    is_behind = later.behind is not None and later.behind == earlier.message
                    if earlier.ended is not None and (earlier.ended < later.begun or is_behind):
                        yield from _overtaken(view, earlier, later, handed)


def _overtaken(view: _View, earlier: Enqueue, later: Enqueue, handed: _Handed) -> Iterator[QueueAnomaly]:
    """`later` was handed out: then `earlier` is gone from the queue, or stands before it in the same answer."""
    deliveries = view.handed.get(earlier.message, [])
    deletes = [one for one in view.deletes.get(earlier.message, ()) if not _is_surely_stale(one, deliveries)]
    discards = view.discards.get(earlier.message, [])
    if any(discard.seen_late for discard in discards) and _may_have_left(view, deliveries, handed):
        return
    gone = [*deletes, *discards]
    if any(
        operation.begun < handed.ended and operation.outcome is not OperationOutcome.FAIL
        for operation in gone
    ):
        return
    if earlier.message not in view.handed:
        # Never handed out at all: lost (said elsewhere) or taken for a duplicate of another send.
        return
    same_answer = [one.place for one in view.handed[earlier.message] if one.receive is handed.receive]
    if not same_answer or same_answer[0] > handed.place:
        detail = {
            "group": later.group,
            "overtook": earlier.message,
            "received_ms": handed.receive.completed_ms,
        }
        yield QueueAnomaly("fifo-violation", later.message, detail)


def _may_have_left(view: _View, deliveries: list[_Handed], handed: _Handed) -> bool:
    """Whether all leases of a message that left by another door may have been over when `handed` was handed out."""
    return all(
        one.receive.begun < handed.ended and _held_until_ms(view, one, handed) <= handed.receive.completed_ms
        for one in deliveries
    )


def _early_deliveries(view: _View) -> Iterator[QueueAnomaly]:
    for message, handed in view.handed.items():
        enqueue = view.enqueues.get(message)
        if enqueue is None or not enqueue.delay_ms:
            continue
        due_ms = enqueue.invoked_ms + enqueue.delay_ms
        for one in handed:
            if one.receive.completed_ms < due_ms and view.clocks.are_true(one.receive.completed_ms):
                detail = {"due_ms": due_ms, "received_ms": one.receive.completed_ms}
                yield QueueAnomaly("early-delivery", message, detail)


def _dedup_violations(view: _View, window_ms: int) -> Iterator[QueueAnomaly]:
    by_id: dict[tuple[str, str], list[Enqueue]] = {}
    for enqueue in view.enqueues.values():
        if enqueue.dedup_id is not None and enqueue.message in view.handed:
            by_id.setdefault((enqueue.queue, enqueue.dedup_id), []).append(enqueue)
    for (_, dedup_id), sends in by_id.items():
        sends.sort(key=lambda send: send.begun)
        for first, second in pairwise(sends):
            # Surely inside the window: from the earliest start of both to the latest end of both.
            (began_ms, end_ms), (began_too_ms, end_too_ms) = (
                _written_between_ms(view, send) for send in (first, second)
            )
            latest_ms = max(end_ms, end_too_ms)
            if latest_ms - min(began_ms, began_too_ms) < window_ms and view.clocks.are_true(latest_ms):
                yield QueueAnomaly(
                    "dedup-violation", second.message, {"id": dedup_id, "first": first.message}
                )
