"""Messages that rest after a release can be called back: they are available now, in order, and counted as before."""

from __future__ import annotations

from queue_desk import SOURCE, Desk

from headrace.core.plan import Rejected
from headrace.queues.commands import EndRest, LoggedMessage, MessageState, Release, Source, WakeReceivers
from headrace.queues.config import QueueConfig, fifo_queue


def test_what_rests_is_available_at_once() -> None:
    desk = Desk(QueueConfig())
    desk.send_plain(3)
    handles = desk.receive()
    desk.ask(Release(SOURCE, tuple(handles[:2]), 60_000))
    assert desk.receive() == []
    desk.take_effects()
    assert desk.ask(EndRest(SOURCE)) == 2
    assert WakeReceivers("q") in desk.take_effects()
    again = desk.receive()
    assert [(handle.offset, handle.delivery) for handle in again] == [(0, 2), (1, 2)]
    assert desk.ask(EndRest(SOURCE)) == 0
    assert desk.status(2).state is MessageState.ACQUIRED


def test_only_what_is_named_and_rests() -> None:
    desk = Desk(QueueConfig())
    desk.send_plain(3)
    handles = desk.receive()
    desk.ask(Release(SOURCE, tuple(handles[:2]), 10_000))
    assert desk.ask(EndRest(SOURCE, (1, 2, 99))) == 1
    assert [handle.offset for handle in desk.receive()] == [1]
    desk.advance(10_000)
    assert [handle.offset for handle in desk.receive()] == [0], "its own time still comes"
    assert isinstance(desk.ask(EndRest(Source("q", "other", 0))), Rejected)


def test_r59_a_group_goes_on_from_its_front() -> None:
    desk = Desk(fifo_queue())
    desk.send(*(LoggedMessage(offset, group=b"g") for offset in range(3)))
    first = desk.receive(1)
    desk.ask(Release(SOURCE, tuple(first), 60_000))
    assert desk.receive() == []
    assert desk.ask(EndRest(SOURCE)) == 1
    assert [handle.offset for handle in desk.receive()] == [0, 1, 2]
    desk.shard.invariants()


def test_r58_after_a_failover_what_rests_does_so_in_full() -> None:
    desk = Desk(QueueConfig())
    desk.send_plain(1)
    desk.ask(Release(SOURCE, tuple(desk.receive()), 60_000))
    assert desk.ask(EndRest(SOURCE)) == 1
    desk.crash()
    assert desk.receive() == []
    desk.advance(60_000)
    assert [handle.delivery for handle in desk.receive()] == [2]
