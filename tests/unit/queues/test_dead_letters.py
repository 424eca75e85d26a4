"""Q3 and R60: dead letters. Death is durable before the move, and the move ends it once."""

from __future__ import annotations

from queue_desk import SOURCE, Desk

from headrace.core.errors import ErrorKind
from headrace.queues.commands import (
    Ack,
    Configure,
    DeadLettersWritten,
    DeathReason,
    Inspect,
    MessageState,
    MoveFailed,
    MoveToDeadLetter,
    RejectMessages,
    Release,
)
from headrace.queues.config import QueueConfig
from headrace.queues.facts import Died, Settled

CONFIG = QueueConfig(visibility_ms=100, max_deliveries=2, dead_letter="d")


def killed(desk: Desk) -> MoveToDeadLetter:
    desk.send_plain(1)
    desk.receive()
    desk.advance(100)
    desk.receive()
    desk.advance(100)
    (move,) = desk.take_effects(MoveToDeadLetter)
    assert isinstance(move, MoveToDeadLetter)
    return move


def test_the_nth_failure_lands_in_the_dead_letters() -> None:
    desk = Desk(CONFIG)
    move = killed(desk)
    assert move == MoveToDeadLetter(SOURCE, "d", 0, DeathReason.MAX_DELIVERIES, 2)
    assert desk.receive() == []
    assert desk.status(0).state is MessageState.DYING
    assert desk.shard.done_offset(SOURCE) == 0, "not done before it is moved: retention must keep it"
    desk.ask(DeadLettersWritten(SOURCE, (0,)))
    assert desk.shard.done_offset(SOURCE) == 1


def test_r60_death_is_journaled_with_the_effect_and_the_end_with_moved() -> None:
    desk = Desk(CONFIG)
    desk.send_plain(1)
    (handle,) = desk.receive()
    plan = desk.shard.decide(RejectMessages(SOURCE, (handle,), "poison"), desk.now_ms)
    assert [type(fact) for fact in plan.facts] == [Died]
    assert plan.effects == [MoveToDeadLetter(SOURCE, "d", 0, DeathReason.REJECTED, 1, "poison")]
    desk.carry_out(plan)
    plan = desk.shard.decide(DeadLettersWritten(SOURCE, (0,)), desk.now_ms)
    assert [type(fact) for fact in plan.facts] == [Settled] and all(fact.durable for fact in plan.facts)


def test_r60_asked_again_after_a_reload_and_after_nothing_else() -> None:
    desk = Desk(CONFIG)
    move = killed(desk)
    desk.advance(10_000_000)
    assert desk.take_effects(MoveToDeadLetter) == [], "a slow move is not doubled by a clock"
    desk.crash()
    assert desk.take_effects(MoveToDeadLetter) == [move]


def test_r60_the_reload_asks_with_the_same_words() -> None:
    desk = Desk(CONFIG)
    desk.send_plain(1)
    desk.ask(RejectMessages(SOURCE, tuple(desk.receive()), "HTTP 500"))
    (before,) = desk.take_effects(MoveToDeadLetter)
    for _ in range(2):
        desk.crash(compact_to=len(desk.journal))
        assert desk.take_effects(MoveToDeadLetter) == [before]


def test_r60_a_failed_move_is_asked_again_when_its_time_has_come() -> None:
    desk = Desk(CONFIG)
    move = killed(desk)
    desk.ask(MoveFailed(SOURCE, (0,), 500))
    desk.ask(MoveFailed(SOURCE, (0,), 500))
    desk.advance(499)
    assert desk.take_effects(MoveToDeadLetter) == []
    desk.advance(1)
    assert desk.take_effects(MoveToDeadLetter) == [move]
    desk.advance(10_000)
    assert desk.take_effects(MoveToDeadLetter) == []


def test_moved_is_said_twice_or_about_something_else() -> None:
    desk = Desk(CONFIG)
    killed(desk)
    desk.send_plain(1)
    for _ in range(2):
        assert desk.ask(DeadLettersWritten(SOURCE, (0, 1, 99))) == ()
    assert desk.status(1).state is MessageState.AVAILABLE


def test_without_a_dead_letter_queue_it_is_archived() -> None:
    """KIP-932: the delivery limit archives."""
    desk = Desk(QueueConfig(visibility_ms=100, max_deliveries=1))
    desk.send_plain(2)
    desk.receive(1)
    desk.advance(100)
    assert desk.take_effects(MoveToDeadLetter) == []
    assert desk.shard.done_offset(SOURCE) == 1


def test_a_rejected_message_is_not_acked_by_its_receipt() -> None:
    desk = Desk(CONFIG)
    desk.send_plain(1)
    handles = tuple(desk.receive())
    desk.ask(RejectMessages(SOURCE, handles))
    assert desk.ask(Ack(SOURCE, handles))[0].kind is ErrorKind.RECEIPT_HANDLE_IS_INVALID
    assert desk.ask(Inspect(SOURCE, 0)).state is MessageState.DYING


def test_a_limit_that_was_lowered_is_found_at_the_next_receive() -> None:
    desk = Desk(QueueConfig(max_deliveries=9, dead_letter="d"))
    desk.send_plain(2)
    for _ in range(3):
        desk.ask(Release(SOURCE, tuple(desk.receive(1)), 0))
    desk.ask(Configure("q", QueueConfig(max_deliveries=3, dead_letter="d")))
    assert desk.offsets() == [1]
    (move,) = desk.take_effects(MoveToDeadLetter)
    assert (move.offset, move.deliveries) == (0, 3)
