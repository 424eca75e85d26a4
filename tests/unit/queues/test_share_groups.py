"""KIP-932: acquisition locks by member, batches of acknowledge types, session close, limits."""

from __future__ import annotations

import pytest
from queue_desk import SOURCE, Desk

from headrace.core.errors import ErrorKind
from headrace.queues.commands import Acknowledge, AckType, MessageState, Receive, ReleaseOwner
from headrace.queues.config import share_group

GAP, ACCEPT, RELEASE, REJECT, RENEW = AckType


def group() -> Desk:
    desk = Desk(share_group())
    desk.send_plain(6)
    desk.receive(4, owner="m1")
    return desk


def test_acquired_as_ranges_with_their_delivery_count() -> None:
    desk = Desk(share_group())
    desk.send_plain(6)
    answer = desk.ask(Receive(SOURCE, 4, owner="m1"))
    assert [tuple(run)[:3] for run in answer.runs] == [(0, 4, 1)]


def test_one_type_for_all_or_one_each() -> None:
    desk = group()
    assert desk.ask(Acknowledge(SOURCE, "m1", ((0, 0, (ACCEPT,)), (1, 3, (GAP, RELEASE, REJECT))))) is None
    states = [desk.status(offset).state for offset in range(4)]
    assert states == [MessageState.DONE, MessageState.DONE, MessageState.AVAILABLE, MessageState.DONE]
    answer = desk.ask(Receive(SOURCE, 10, owner="m2"))
    assert [tuple(run)[:3] for run in answer.runs] == [(2, 3, 2), (4, 6, 1)]


def test_renew_keeps_the_lock() -> None:
    """KIP-1222."""
    desk = group()
    desk.advance(20_000)
    desk.ask(Acknowledge(SOURCE, "m1", ((0, 1, (RENEW,)),)))
    desk.advance(10_000)
    assert [desk.status(offset).state for offset in (0, 2)] == [MessageState.ACQUIRED, MessageState.AVAILABLE]


@pytest.mark.parametrize(
    ("owner", "batch", "kind"),
    [
        ("m2", (0, 0, (ACCEPT,)), ErrorKind.INVALID_RECORD_STATE),
        ("m1", (3, 4, (ACCEPT,)), ErrorKind.INVALID_RECORD_STATE),
        ("m1", (0, 2**62, (ACCEPT,)), ErrorKind.INVALID_RECORD_STATE),
        ("m1", (0, 2, (ACCEPT, ACCEPT)), ErrorKind.INVALID_REQUEST),
        ("m1", (2, 1, (ACCEPT,)), ErrorKind.INVALID_REQUEST),
        ("m1", (0, 0, ()), ErrorKind.INVALID_REQUEST),
        ("m1", (0, 0, (9,)), ErrorKind.INVALID_REQUEST),
    ],
)
def test_all_or_nothing(owner: str, batch: tuple[int, int, tuple[int, ...]], kind: ErrorKind) -> None:
    desk = group()
    answer = desk.ask(Acknowledge(SOURCE, owner, ((1, 1, (ACCEPT,)), batch)))
    assert answer.kind is kind
    assert all(desk.status(offset).state is MessageState.ACQUIRED for offset in range(4))


def test_the_same_offset_twice_is_refused() -> None:
    desk = group()
    answer = desk.ask(Acknowledge(SOURCE, "m1", ((0, 1, (ACCEPT,)), (1, 1, (RELEASE,)))))
    assert answer.kind is ErrorKind.INVALID_RECORD_STATE


def test_below_the_start_is_passed_over() -> None:
    desk = group()
    desk.ask(Acknowledge(SOURCE, "m1", ((0, 1, (ACCEPT,)),)))
    assert desk.ask(Acknowledge(SOURCE, "m1", ((0, 3, (ACCEPT,)),))) is None
    assert desk.shard.done_offset(SOURCE) == 4


def test_a_lock_that_ran_out_is_not_acknowledged() -> None:
    desk = group()
    desk.advance(30_000)
    assert desk.ask(Acknowledge(SOURCE, "m1", ((0, 0, (ACCEPT,)),))).kind is ErrorKind.INVALID_RECORD_STATE


def test_a_closed_session_gives_everything_back() -> None:
    desk = group()
    desk.receive(1, owner="m2")
    desk.ask(ReleaseOwner("q", "m1"))
    assert [desk.status(offset).state for offset in (0, 4)] == [MessageState.AVAILABLE, MessageState.ACQUIRED]
    desk.ask(ReleaseOwner("nobody", "m1"))


def test_five_deliveries_and_archived() -> None:
    desk = Desk(share_group())
    desk.send_plain(1)
    for delivery in range(1, 6):
        (handle,) = desk.receive(owner="m")
        assert handle.delivery == delivery
        desk.ask(Acknowledge(SOURCE, "m", ((0, 0, (RELEASE,)),)))
    assert desk.status(0).state is MessageState.DONE


def test_two_thousand_locks_per_partition() -> None:
    desk = Desk(share_group(), checked=False)
    desk.send_plain(5_000)
    assert len(desk.receive(3_000, owner="m")) == 2_000
    assert desk.ask(Receive(SOURCE, 1, owner="m")).limited
