"""Receive, acknowledge, give back, keep longer: one message and its receipts."""

from __future__ import annotations

import pytest
from queue_desk import EPOCH_MS, SOURCE, Desk

from headrace.core.errors import ErrorKind
from headrace.queues.commands import (
    Ack,
    Configure,
    Extend,
    Handle,
    MessageState,
    Open,
    Pause,
    Receive,
    ReceivedRuns,
    Release,
    SeekSource,
    Source,
    WakeReceivers,
)
from headrace.queues.config import Backoff, QueueConfig, fifo_queue


def test_received_acked_gone() -> None:
    desk = Desk(QueueConfig())
    desk.send_plain(3)
    handles = desk.receive()
    assert [handle.offset for handle in handles] == [0, 1, 2]
    assert desk.receive() == []
    assert desk.ask(Ack(SOURCE, tuple(handles))) == (None, None, None)
    desk.advance(1_000_000)
    assert desk.receive() == []
    assert desk.shard.done_offset(SOURCE) == 3


def test_a_dead_worker_gives_its_message_back_after_the_lock_and_not_before() -> None:
    desk = Desk(QueueConfig(visibility_ms=1_000))
    desk.send_plain(1)
    desk.receive()
    desk.advance(999)
    assert desk.receive() == []
    desk.take_effects()
    desk.advance(1)
    assert WakeReceivers("q") in desk.take_effects()
    (again,) = desk.receive()
    assert again.delivery == 2


def test_r56_a_stale_receipt_acts_on_nothing() -> None:
    desk = Desk(QueueConfig(visibility_ms=1_000))
    desk.send_plain(1)
    (old,) = desk.receive()
    desk.advance(1_000)
    (new,) = desk.receive()
    for command in (Ack(SOURCE, (old,)), Extend(SOURCE, (old,), 5_000), Release(SOURCE, (old,))):
        (result,) = desk.ask(command)
        assert result.kind is ErrorKind.RECEIPT_HANDLE_IS_INVALID
        assert desk.status(0).state is MessageState.ACQUIRED
        assert desk.status(0).until_ms == 2_000
    assert desk.ask(Ack(SOURCE, (new,))) == (None,)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_r56_of_several_receipts_only_those_that_hold_act(order: tuple[int, ...]) -> None:
    """Wherever the stale ones stand among them."""
    desk = Desk(QueueConfig(visibility_ms=1_000))
    desk.send_plain(3)
    old = desk.receive()
    desk.advance(1_000)
    new = desk.receive()
    given = [old[0], new[1], old[2]]
    results = desk.ask(Ack(SOURCE, tuple(given[place] for place in order)))
    assert [order[at] for at, refusal in enumerate(results) if refusal is None] == [1]
    states = [desk.status(offset).state for offset in range(3)]
    assert states == [MessageState.ACQUIRED, MessageState.DONE, MessageState.ACQUIRED]


def test_r56_a_receipt_from_before_a_failover_does_not_ack_someone_elses_lease() -> None:
    """Leases are not journaled, so both deliveries are the first; the epoch tells them apart."""
    desk = Desk(QueueConfig())
    desk.send_plain(1)
    (old,) = desk.receive()
    desk.crash()
    (new,) = desk.receive()
    assert (old.offset, old.delivery) == (new.offset, new.delivery)
    (result,) = desk.ask(Ack(SOURCE, (old,)))
    assert result.kind is ErrorKind.RECEIPT_HANDLE_IS_INVALID
    assert desk.ask(Ack(SOURCE, (new,))) == (None,)


def test_f73_r56_a_receipt_from_before_a_seek_is_void() -> None:
    """Nor does it come back to life: epochs grow with every seek and every load, so none is given twice."""
    desk = Desk(QueueConfig())
    desk.send_plain(1)
    receipts: list[Handle] = []
    for change in (
        lambda: None,
        lambda: desk.ask(SeekSource(SOURCE, 0)),
        lambda: desk.ask(SeekSource(SOURCE, 0)),
        desk.crash,
    ) * 2:
        change()
        (new,) = desk.receive() or receipts[-1:]
        if receipts and new == receipts[-1]:
            continue  # nothing has changed: it is still leased
        assert all(old.delivery == new.delivery and old.epoch < new.epoch for old in receipts)
        for old in receipts:
            for command in (Ack(SOURCE, (old,)), Extend(SOURCE, (old,), 5_000), Release(SOURCE, (old,))):
                (result,) = desk.ask(command)
                assert result.kind is ErrorKind.RECEIPT_HANDLE_IS_INVALID
                assert desk.status(0).state is MessageState.ACQUIRED
        receipts.append(new)
    assert len(receipts) == 7
    assert desk.ask(Ack(SOURCE, (receipts[-1],))) == (None,)


def test_a_late_delete_counts_until_somebody_else_has_the_message() -> None:
    """As on SQS: a worker that was a little too slow still prevents the second delivery."""
    desk = Desk(QueueConfig(visibility_ms=1_000))
    desk.send_plain(1)
    (handle,) = desk.receive()
    desk.advance(1_000)
    assert desk.ask(Ack(SOURCE, (handle,))) == (None,)
    assert desk.receive() == []


def test_a_late_delete_does_not_count_on_a_fifo_queue() -> None:
    desk = Desk(fifo_queue(visibility_ms=1_000))
    desk.send_plain(1)
    (handle,) = desk.receive()
    desk.advance(1_000)
    assert desk.ask(Ack(SOURCE, (handle,)))[0].kind is ErrorKind.RECEIPT_HANDLE_IS_INVALID
    assert desk.offsets() == [0]


def test_deleting_twice_succeeds() -> None:
    """The answer to the first may have been lost."""
    desk = Desk(QueueConfig())
    desk.send_plain(1)
    (handle,) = desk.receive()
    assert desk.ask(Ack(SOURCE, (handle, handle))) == (None, None)
    assert desk.ask(Ack(SOURCE, (handle,))) == (None,)


def test_a_batch_is_answered_entry_by_entry() -> None:
    desk = Desk(QueueConfig())
    desk.send_plain(3)
    good, bad, other = desk.receive()
    results = desk.ask(Ack(SOURCE, (good, Handle(bad.offset, 9, bad.epoch), Handle(77, 1, 1))))
    assert results[0] is None
    assert [result.kind for result in results[1:]] == [ErrorKind.RECEIPT_HANDLE_IS_INVALID] * 2
    assert desk.status(other.offset).state is MessageState.ACQUIRED


def test_r57_an_ack_is_journaled_before_it_is_answered() -> None:
    desk = Desk(QueueConfig())
    desk.send_plain(1)
    plan = desk.shard.decide(Ack(SOURCE, tuple(desk.receive()), waiter=1), desk.now_ms)
    assert [fact.durable for fact in plan.facts] == [True]
    assert len(plan.replies) == 1  # in the same plan, so behind the reply gate


def test_r57_a_confirmed_delete_never_returns() -> None:
    desk = Desk(QueueConfig())
    desk.send_plain(5)
    handles = desk.receive(3)
    desk.ask(Ack(SOURCE, (handles[0], handles[2])))
    desk.crash()
    assert desk.offsets() == [1, 3, 4]


def test_receive_writes_nothing_on_a_standard_queue_and_does_on_a_fifo_queue() -> None:
    for config, written in ((QueueConfig(), False), (fifo_queue(), True)):
        desk = Desk(config)
        desk.send_plain(1)
        plan = desk.shard.decide(Receive(SOURCE, 1), desk.now_ms)
        assert any(fact.durable for fact in plan.facts) == written


def test_release_with_a_delay() -> None:
    desk = Desk(QueueConfig())
    desk.send_plain(1)
    (handle,) = desk.receive()
    assert desk.ask(Release(SOURCE, (handle,), 500)) == (None,)
    assert desk.status(0).state is MessageState.RESTING
    desk.advance(499)
    assert desk.receive() == []
    desk.advance(1)
    assert desk.receive()[0].delivery == 2


def test_release_takes_the_queues_back_off_and_its_draw() -> None:
    desk = Desk(QueueConfig(backoff=Backoff(initial_ms=100, multiplier=3, max_ms=1_000, jitter=0.5)))
    desk.send_plain(1)
    for delivery, draw, rest_ms in (
        (1, 0.0, 100),
        (2, 0.0, 300),
        (3, 0.0, 900),
        (4, 0.0, 1_000),
        (5, 0.5, 750),
    ):
        (handle,) = desk.receive()
        assert handle.delivery == delivery
        desk.ask(Release(SOURCE, (handle,), draw=draw))
        desk.advance(rest_ms - 1)
        assert desk.receive() == []
        desk.advance(1)


def test_extend_counts_from_now_and_zero_gives_back() -> None:
    desk = Desk(QueueConfig(visibility_ms=1_000))
    desk.send_plain(1)
    (handle,) = desk.receive()
    desk.advance(900)
    assert desk.ask(Extend(SOURCE, (handle,), 1_000)) == (None,)
    desk.advance(999)
    assert desk.receive() == []
    assert desk.ask(Extend(SOURCE, (handle,), 0)) == (None,)
    assert desk.receive()[0].delivery == 2


def test_extend_can_shorten() -> None:
    desk = Desk(QueueConfig(visibility_ms=60_000))
    desk.send_plain(2)
    first, _ = desk.receive()
    desk.ask(Extend(SOURCE, (first,), 100))
    desk.advance(100)
    assert desk.offsets() == [0]


def test_extend_is_refused_beyond_the_longest_lease_and_never_cut_down() -> None:
    """Strict SQS: twelve hours from the receive."""
    desk = Desk(QueueConfig(visibility_ms=1_000, max_lease_ms=10_000))
    desk.send_plain(1)
    (handle,) = desk.receive()
    desk.ask(Extend(SOURCE, (handle,), 9_000))
    desk.advance(5_000)
    (result,) = desk.ask(Extend(SOURCE, (handle,), 5_001))
    assert result.kind is ErrorKind.INVALID_PARAMETER
    assert desk.status(0).until_ms == 9_000
    assert desk.ask(Extend(SOURCE, (handle,), 5_000)) == (None,)


def test_extend_what_nobody_holds() -> None:
    desk = Desk(QueueConfig(visibility_ms=1_000))
    desk.send_plain(1)
    (handle,) = desk.receive()
    desk.advance(1_000)
    assert desk.ask(Extend(SOURCE, (handle,), 5))[0].kind is ErrorKind.MESSAGE_NOT_INFLIGHT


def test_max_in_flight_is_per_partition_and_an_ack_wakes_who_waits() -> None:
    desk = Desk(QueueConfig(max_in_flight=2))
    desk.send_plain(5)
    handles = desk.receive()
    assert len(handles) == 2
    answer = desk.ask(Receive(SOURCE, 10))
    assert answer.limited and not answer.runs
    desk.take_effects()
    desk.ask(Ack(SOURCE, (handles[0],)))
    assert WakeReceivers("q") in desk.take_effects()
    assert desk.offsets() == [2]


def test_the_first_receive_is_remembered() -> None:
    """SQS: ApproximateFirstReceiveTimestamp."""
    desk = Desk(QueueConfig(visibility_ms=1_000))
    desk.send_plain(1)
    desk.advance(7)
    desk.receive()
    desk.advance(5_000)
    answer = desk.ask(Receive(SOURCE, 1))
    assert isinstance(answer, ReceivedRuns)
    assert answer.runs[0].first_received_ms == EPOCH_MS + 7


def test_paused_hands_out_nothing_and_resumes() -> None:
    desk = Desk(QueueConfig())
    desk.send_plain(1)
    desk.ask(Pause("q"))
    assert desk.ask(Receive(SOURCE, 1)).paused
    desk.crash()
    assert desk.ask(Receive(SOURCE, 1)).paused, "a pause survives a failover"
    desk.take_effects()
    desk.ask(Pause("q", False))
    assert WakeReceivers("q") in desk.take_effects()
    assert desk.offsets() == [0]


def test_unknown_queues_are_refused() -> None:
    desk = Desk()
    ghost = Source("ghost", "t", 0)
    for command in (Receive(ghost, 1), Ack(ghost, ()), Open(ghost, 0), Pause("ghost")):
        assert desk.ask(command).kind is ErrorKind.QUEUE_DOES_NOT_EXIST
    assert desk.ask(Configure("q", QueueConfig(fifo=True, fair=True))).kind is ErrorKind.INVALID_CONFIG


def test_a_subscription_over_two_topics() -> None:
    desk = Desk(QueueConfig())
    other = Source("q", "u", 5)
    assert desk.ask(Open(other, 3)) == 3
    assert desk.ask(Open(other, 9)) == 3, "opening again changes nothing"
    desk.send_plain(2)
    desk.send_plain(6, source=other)
    assert desk.offsets() == [0, 1]
    handles = desk.receive(source=other)
    assert [handle.offset for handle in handles] == [3, 4, 5]
    desk.ask(Ack(other, tuple(handles)))
    assert (desk.shard.done_offset(SOURCE), desk.shard.done_offset(other)) == (0, 6)
