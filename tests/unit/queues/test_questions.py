"""Q10: counts, peek and the state of one message; none of which changes anything."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from queue_desk import EPOCH_MS, SOURCE, Desk

from headrace.core.errors import ErrorKind
from headrace.queues import commands as c
from headrace.queues.config import QueueConfig, fifo_queue


def busy() -> Desk:
    """One message in every state."""
    desk = Desk(QueueConfig(delays=True, ttl=True, fair=True, dead_letter="d", visibility_ms=1_000))
    desk.send(
        c.LoggedMessage(0, group=b"a"), c.LoggedMessage(0), c.LoggedMessage(0), c.LoggedMessage(0, due_ms=EPOCH_MS + 900), c.LoggedMessage(0),
        c.LoggedMessage(0, expires_ms=EPOCH_MS + 800, group=b"b"), c.LoggedMessage(0),
    )  # fmt: skip
    handles = {handle.offset: handle for handle in desk.receive(5)}
    desk.ask(c.Ack(SOURCE, (handles[1],)))
    desk.ask(c.Release(SOURCE, (handles[2],), 700))
    desk.ask(c.RejectMessages(SOURCE, (handles[4],)))
    desk.ask(c.Release(SOURCE, (handles[5],), 0))
    return desk


def test_counts_and_states() -> None:
    desk = busy()
    counts = desk.ask(c.Describe(SOURCE))
    assert counts == desk.shard.counts(SOURCE)
    assert counts == c.Counts(2, 1, 2, 1, 0, 7, 7, False)
    states = [desk.status(offset).state.name for offset in range(8)]
    assert states == [
        "ACQUIRED",
        "DONE",
        "RESTING",
        "SCHEDULED",
        "DYING",
        "AVAILABLE",
        "AVAILABLE",
        "UNKNOWN",
    ]
    assert desk.status(2) == c.MessageStatus(c.MessageState.RESTING, 1, 700)
    assert desk.status(3).until_ms == EPOCH_MS + 900
    assert desk.status(5).deliveries == 1


def test_peek_shows_what_could_be_received_and_counts_no_delivery() -> None:
    desk = busy()
    assert desk.ask(c.Peek(SOURCE)) == (5, 6)
    assert desk.ask(c.Peek(SOURCE, limit=1)) == (5,)
    assert desk.ask(c.Peek(SOURCE, from_offset=6)) == (6,)
    assert desk.status(5).deliveries == 1


@pytest.mark.parametrize(
    "command",
    [
        c.Describe(SOURCE, waiter=1), c.Peek(SOURCE, waiter=1), c.Inspect(SOURCE, 0, waiter=1), c.ListSchedules(SOURCE, waiter=1),
        c.Receive(SOURCE, 10, waiter=1), c.Ack(SOURCE, (c.Handle(0, 1, 1 << 20),), waiter=1),
        c.Release(SOURCE, (c.Handle(0, 1, 1 << 20),), waiter=1), c.ReleaseOwner("q", "", waiter=1),
        c.Extend(SOURCE, (c.Handle(0, 1, 1 << 20),), 5, waiter=1), c.RejectMessages(SOURCE, (c.Handle(0, 1, 1 << 20),), "", waiter=1),
        c.Acknowledge(SOURCE, "", ((0, 0, (1,)),), waiter=1), c.DeadLettersWritten(SOURCE, (4,), waiter=1), c.MoveFailed(SOURCE, (4,), 5, waiter=1),
        c.Purge(SOURCE, waiter=1), c.SeekSource(SOURCE, 3, waiter=1), c.Close(SOURCE, waiter=1), c.RemoveQueue("q", waiter=1), c.Pause("q", True, waiter=1),
        c.Configure("q", QueueConfig(), waiter=1), c.MoveSchedule(SOURCE, 3, 0, waiter=1), c.CancelSchedule(SOURCE, 3, waiter=1),
        c.SetClock(5, waiter=1), c.DataAvailable(SOURCE, 9, indexed_to=9, waiter=1), c.FindDuplicate(SOURCE, b"x", 0, waiter=1),
        c.Open(SOURCE, 0, waiter=1),
    ],
    ids=lambda command: type(command).__name__,
)  # fmt: skip
def test_deciding_changes_nothing(command: Any) -> None:
    """The reply gate rests on it: what was decided but not journaled has not happened."""
    desk = busy()
    before = pickle.dumps(desk.shard._board)
    plan = desk.shard.decide(command, desk.now_ms)
    desk.shard.expire(desk.now_ms + 10_000)
    assert pickle.dumps(desk.shard._board) == before
    assert len(plan.replies) == 1


def test_every_command_is_known_and_refuses_an_unknown_queue() -> None:
    ghost = c.Source("ghost", "t", 0)
    desk = Desk()
    for command in (
        c.Describe(ghost), c.Peek(ghost), c.Inspect(ghost, 0), c.ListSchedules(ghost), c.Release(ghost, ()),
        c.Extend(ghost, (), 5), c.RejectMessages(ghost, ()), c.Acknowledge(ghost, "", ()), c.DeadLettersWritten(ghost, ()),
        c.MoveFailed(ghost, (), 5), c.Purge(ghost), c.SeekSource(ghost, 3), c.MoveSchedule(ghost, 3, 0),
        c.CancelSchedule(ghost, 3), c.DataAvailable(ghost, 9), c.FindDuplicate(ghost, b"x", 0),
    ):  # fmt: skip
        assert desk.ask(command).kind is ErrorKind.QUEUE_DOES_NOT_EXIST
    assert desk.shard.counts(ghost) is None
    assert desk.shard.done_offset(ghost) is None
    assert desk.shard.wanted(ghost) is None


def test_nobody_waits_nobody_is_answered() -> None:
    desk = Desk(fifo_queue())
    assert desk.shard.decide(c.Receive(SOURCE, 1), 0).replies == ()


def test_the_names_of_things() -> None:
    assert str(SOURCE) == "q<t-0"


def test_what_is_held_of_a_group_is_known_once_everything_was_looked_at() -> None:
    desk = Desk(fifo_queue())
    desk.send(c.LoggedMessage(0, group=b"a"), c.LoggedMessage(0, group=b"b"))
    counts = desk.shard.counts(SOURCE)
    assert counts is not None
    end = counts.end_offset
    assert desk.ask(c.Holding(SOURCE, b"a", end)) is True
    assert desk.ask(c.Holding(SOURCE, b"z", end)) is False
    assert desk.ask(c.Holding(SOURCE, b"z", end + 1)) is None, "what comes next may be of it"
    assert sorted(desk.ask(c.HeldGroups(SOURCE, end))) == [b"a", b"b"]
    assert desk.ask(c.HeldGroups(SOURCE, end + 1)) is None
