"""Q8: high overtakes, tenants take turns."""

from __future__ import annotations

from collections import Counter

from queue_desk import EPOCH_MS, SOURCE, Desk

from headrace.queues.commands import Ack, LoggedMessage
from headrace.queues.config import QueueConfig
from headrace.queues.fairness import _shares


def test_high_overtakes_a_backlog_of_100_000() -> None:
    desk = Desk(QueueConfig(priorities=True), checked=False)
    desk.send_plain(100_000)
    desk.send(LoggedMessage(0, priority=9), LoggedMessage(0, priority=0), LoggedMessage(0, priority=7))
    assert desk.offsets(4) == [100_000, 100_002, 0, 1]


def test_low_is_last() -> None:
    desk = Desk(QueueConfig(priorities=True))
    desk.send(
        LoggedMessage(0, priority=0),
        LoggedMessage(0),
        LoggedMessage(0, priority=3),
        LoggedMessage(0, priority=42),
    )
    assert desk.offsets() == [3, 1, 2, 0]


def test_a_message_that_comes_back_keeps_its_priority() -> None:
    desk = Desk(QueueConfig(priorities=True, visibility_ms=1_000))
    desk.send(LoggedMessage(0, priority=9))
    desk.receive()
    desk.send_plain(2)
    desk.advance(1_000)
    assert desk.offsets(1) == [0]


def test_a_delayed_message_keeps_its_priority() -> None:
    desk = Desk(QueueConfig(priorities=True, delays=True))
    desk.send(LoggedMessage(0), LoggedMessage(0, due_ms=EPOCH_MS + 10, priority=9))
    desk.advance(10)
    assert desk.offsets(1) == [1]


def test_priorities_that_the_queue_does_not_have_mean_nothing() -> None:
    desk = Desk(QueueConfig(delays=True))
    desk.send(LoggedMessage(0, priority=1), LoggedMessage(0, priority=9))
    assert desk.offsets() == [0, 1]


def test_tenants_take_turns() -> None:
    desk = Desk(QueueConfig(fair=True))
    desk.send(
        *[LoggedMessage(0, group=b"noisy")] * 20, LoggedMessage(0, group=b"a"), LoggedMessage(0, group=b"b")
    )
    assert sorted(desk.offsets(3)) == [0, 20, 21]
    desk.send(LoggedMessage(0, group=b"a"))
    assert sorted(desk.offsets(2)) == [1, 22]


def test_one_noisy_tenant_of_fifty_does_not_double_the_others_wait() -> None:
    """Fifty tenants, one message each per round, forty received per round; then one tenant sends a thousand times as
    much. The wait of the others, in rounds, must not double."""

    def wait(noise: int) -> float:
        desk = Desk(QueueConfig(fair=True, visibility_ms=1_000_000), checked=False)
        sent_at: dict[int, int] = {}
        waits: list[int] = []
        for turn in range(60):
            tenants = [b"%d" % number for number in range(49)]
            messages = [LoggedMessage(0, group=tenant) for tenant in tenants if (turn + int(tenant)) % 2]
            first = len(desk.log.get(SOURCE, []))
            sent_at |= {first + at: turn for at in range(len(messages))}
            desk.send(*messages, *[LoggedMessage(0, group=b"noisy")] * noise)
            handles = desk.receive(27)
            desk.ask(Ack(SOURCE, tuple(handles)))
            waits += [turn - sent_at[handle.offset] for handle in handles if handle.offset in sent_at]
        return sum(waits) / len(waits)

    assert wait(1_000) < 2 * max(wait(1), 0.5)


def test_fairness_is_within_a_priority() -> None:
    desk = Desk(QueueConfig(fair=True, priorities=True))
    desk.send(
        *[LoggedMessage(0, group=b"a", priority=9)] * 3,
        LoggedMessage(0, group=b"b", priority=9),
        LoggedMessage(0, group=b"c", priority=0),
    )
    assert sorted(desk.offsets(2)) == [0, 3]
    assert desk.offsets(3) == [1, 2, 4]


def test_fair_with_expiry_still_fills_the_batch() -> None:
    desk = Desk(QueueConfig(fair=True, ttl=True))
    gone = EPOCH_MS + 10
    desk.send(
        *[LoggedMessage(0, group=b"a", expires_ms=gone)] * 5,
        LoggedMessage(0, group=b"a"),
        *[LoggedMessage(0, group=b"b")] * 9,
    )
    desk.now_ms = 20
    tenants = Counter(desk.log[SOURCE][offset].group for offset in desk.offsets(8))
    assert tenants == {b"a": 1, b"b": 7}


def test_shares() -> None:
    assert _shares([5, 5, 5], 3) == [1, 1, 1]
    assert _shares([1, 9, 9], 7) == [1, 3, 3]
    assert _shares([2, 1], 10) == [2, 1]
    assert sum(_shares([100, 100, 100], 10)) == 10
