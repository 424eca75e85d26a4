"""Q7: delay to the millisecond, without an upper limit; list, move, cancel; survives failover. And the TTL (Q8)."""

from __future__ import annotations

from queue_desk import EPOCH_MS, SOURCE, Desk

from headrace.core.errors import ErrorKind
from headrace.queues.commands import (
    Ack,
    CancelSchedule,
    DeathReason,
    Extend,
    ListSchedules,
    LoggedMessage,
    MessageState,
    MoveSchedule,
    MoveToDeadLetter,
    SetClock,
    WakeReceivers,
)
from headrace.queues.config import QueueConfig
from headrace.queues.expire import MAX_EXPIRED

YEAR_MS = 366 * 24 * 3600 * 1000


def due(after_ms: int) -> LoggedMessage:
    return LoggedMessage(0, due_ms=EPOCH_MS + after_ms)


def test_not_before_it_is_due_and_then_at_once() -> None:
    desk = Desk(QueueConfig(delays=True))
    desk.send(due(1_234), LoggedMessage(0))
    assert desk.offsets() == [1]
    assert desk.shard.next_deadline() == 1_234
    desk.advance(1_233)
    assert desk.receive() == []
    desk.take_effects()
    desk.advance(1)
    assert WakeReceivers("q") in desk.take_effects()
    assert desk.offsets() == [0]


def test_a_hundred_years() -> None:
    desk = Desk(QueueConfig(delays=True))
    desk.send(due(100 * YEAR_MS))
    desk.advance(100 * YEAR_MS - 1)
    assert desk.receive() == []
    desk.advance(1)
    assert desk.offsets() == [0]


def test_due_in_the_past_is_due_now() -> None:
    desk = Desk(QueueConfig(delays=True))
    desk.send(due(-5))
    assert desk.offsets() == [0]


def test_list_in_pages() -> None:
    desk = Desk(QueueConfig(delays=True))
    desk.send(due(300), LoggedMessage(0), due(100), due(200))
    at = EPOCH_MS
    assert desk.ask(ListSchedules(SOURCE, limit=2)) == ((0, at + 300), (2, at + 100))
    assert desk.ask(ListSchedules(SOURCE, 3, 2)) == ((3, at + 200),)


def test_move_earlier_and_later_and_it_survives_a_failover() -> None:
    desk = Desk(QueueConfig(delays=True))
    desk.send(due(300), due(100))
    desk.ask(MoveSchedule(SOURCE, 0, EPOCH_MS + 50))
    desk.ask(MoveSchedule(SOURCE, 1, EPOCH_MS + 500))
    desk.crash(compact_to=len(desk.journal))
    desk.advance(50)
    assert desk.offsets() == [0]
    desk.advance(449)
    assert desk.receive() == []
    desk.advance(1)
    assert desk.offsets() == [1]
    assert desk.ask(MoveSchedule(SOURCE, 1, 0)).kind is ErrorKind.SCHEDULE_NOT_FOUND


def test_cancel_and_it_survives_a_failover() -> None:
    desk = Desk(QueueConfig(delays=True))
    desk.send(due(100), due(100))
    assert desk.ask(CancelSchedule(SOURCE, 0)) is None
    assert desk.ask(CancelSchedule(SOURCE, 0)).kind is ErrorKind.SCHEDULE_NOT_FOUND
    desk.crash()
    desk.advance(100)
    assert desk.offsets() == [1]


def test_overdue_after_a_reload_fires_at_once() -> None:
    desk = Desk(QueueConfig(delays=True))
    desk.send(due(100), due(100_000))
    desk.now_ms = 50_000  # nobody led the shard for a while
    desk.crash()
    assert desk.offsets() == [0]
    assert desk.status(1).state is MessageState.SCHEDULED


def test_a_jump_of_the_wall_clock_matters_when_the_driver_says_so() -> None:
    desk = Desk(QueueConfig(delays=True))
    desk.send(due(10_000))
    assert desk.shard.next_deadline() == 10_000
    desk.ask(SetClock(EPOCH_MS + 9_000))
    assert desk.shard.next_deadline() == 1_000
    desk.advance(1_000)
    assert desk.offsets() == [0]


def test_one_call_of_expire_does_a_bounded_amount_of_work() -> None:
    desk = Desk(QueueConfig(delays=True), checked=False)
    desk.send(*[due(5)] * (2 * MAX_EXPIRED + 7))
    desk.now_ms = 5
    left = []
    while (at := desk.shard.next_deadline()) is not None and at <= 5:
        desk.carry_out(desk.shard.expire(5))
        counts = desk.shard.counts(SOURCE)
        assert counts is not None
        left.append(counts.delayed)
    assert left == [MAX_EXPIRED + 7, 7, 0]


def test_a_lease_of_many_messages_expires_within_the_same_bound() -> None:
    desk = Desk(QueueConfig(visibility_ms=10), checked=False)
    desk.send_plain(2_500)
    desk.receive(2_500)
    desk.now_ms = 10
    left = []
    while (at := desk.shard.next_deadline()) is not None and at <= 10:
        desk.carry_out(desk.shard.expire(10))
        counts = desk.shard.counts(SOURCE)
        assert counts is not None
        left.append(counts.in_flight)
    assert left == [1_500, 500, 0]


# --- TTL ---------------------------------------------------------------------------------------------------------


def expiring(after_ms: int, due_ms: int = 0) -> LoggedMessage:
    return LoggedMessage(0, due_ms=due_ms, expires_ms=EPOCH_MS + after_ms)


def test_expired_is_never_delivered() -> None:
    desk = Desk(QueueConfig(ttl=True))
    desk.send(expiring(100), LoggedMessage(0), expiring(200))
    desk.now_ms = 150  # even if nobody called expire in time
    assert desk.offsets() == [1, 2]
    desk.advance(0)
    assert desk.status(0).state is MessageState.DONE


def test_expired_while_scheduled() -> None:
    desk = Desk(QueueConfig(ttl=True, delays=True))
    desk.send(expiring(100, due_ms=EPOCH_MS + 500))
    desk.advance(100)
    assert desk.status(0).state is MessageState.DONE
    assert desk.shard.next_deadline() is None


def test_expired_in_flight_may_be_finished_but_is_not_delivered_again() -> None:
    desk = Desk(QueueConfig(ttl=True, visibility_ms=1_000))
    desk.send(expiring(100), expiring(100))
    kept, given_back = desk.receive()
    desk.advance(500)
    assert desk.status(0).state is MessageState.ACQUIRED
    assert desk.ask(Ack(SOURCE, (kept,))) == (None,)
    desk.ask(Extend(SOURCE, (given_back,), 0))
    assert desk.receive() == []
    assert desk.shard.done_offset(SOURCE) == 2


def test_expired_to_the_dead_letters_if_the_queue_says_so() -> None:
    desk = Desk(QueueConfig(ttl=True, dead_letter="d", dead_letter_expired=True))
    desk.send(expiring(100))
    desk.advance(100)
    (move,) = desk.take_effects(MoveToDeadLetter)
    assert (move.offset, move.reason, move.deliveries) == (0, DeathReason.EXPIRED, 0)
