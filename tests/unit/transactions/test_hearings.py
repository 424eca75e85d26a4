"""R47 after an abort: a batch that was given up is told from the first one of the next transaction."""

from __future__ import annotations

from headrace.transactions.hearings import Hearings
from headrace.transactions.verification import Verifications

P, EPOCH = 9, 0
OLD, NEW = 5, 8


def after_an_abort() -> Hearings:
    hearings = Hearings()
    hearings.aborted(P, EPOCH, newest_connection_id=7)
    return hearings


def test_without_an_abort_everybody_is_heard_at_once() -> None:
    assert Hearings().admits(P, EPOCH, OLD, 3)


def test_an_older_connection_has_to_say_it_twice() -> None:
    hearings = after_an_abort()
    assert not hearings.admits(P, EPOCH, OLD, 3)
    assert not hearings.admits(P, EPOCH, 7, 3), "the newest of those that were there before"
    assert not hearings.admits(P, EPOCH, OLD, 4), "what waits behind it is no repetition"
    assert hearings.admits(P, EPOCH, OLD, 3)
    assert hearings.admits(P, EPOCH, OLD, 4)


def test_a_repetition_comes_over_the_same_connection() -> None:
    """A client that left a connection says it again over another one, which is newer: that is not heard here."""
    hearings = after_an_abort()
    assert not hearings.admits(P, EPOCH, OLD, 3)
    assert not hearings.admits(P, EPOCH, OLD - 1, 3)


def test_connections_since_the_abort_and_other_producers_are_heard() -> None:
    hearings = after_an_abort()
    assert hearings.admits(P, EPOCH, NEW, 3)
    assert hearings.admits(P, EPOCH + 1, OLD, 0), "a new epoch can't be from before"
    assert hearings.admits(P + 1, EPOCH, OLD, 0)


def test_once_it_has_written_the_abort_is_forgotten() -> None:
    partition = Verifications()
    partition.marker_written(P, EPOCH, commit=False, newest_connection_id=7)
    assert not partition.hearings.admits(P, EPOCH, OLD, 3)
    partition.appended(P)
    assert partition.hearings.admits(P, EPOCH, OLD, 4)


def test_a_commit_asks_nobody_to_repeat() -> None:
    partition = Verifications()
    partition.marker_written(P, EPOCH, commit=True, newest_connection_id=7)
    assert partition.hearings.admits(P, EPOCH, OLD, 3)


def test_memory_is_bounded() -> None:
    """X31: sequences and producers come from outside."""
    hearings = Hearings(limit=3)
    for producer_id in range(5):
        hearings.aborted(producer_id, EPOCH, 7)
    assert hearings.admits(0, EPOCH, OLD, 1), "forgotten"
    for words in range(1_000):
        assert not hearings.admits(4, EPOCH, OLD, words)
    assert not hearings.admits(4, EPOCH, OLD, 999), "only so many are remembered"
