"""R39: where a producer begins in a log that does not know it, as a pure machine (by frames: client/test_refused_batches.py)."""

from __future__ import annotations

from headrace.broker.beginnings import MAX_PRODUCERS, Beginnings
from headrace.records.batch import BatchHeader, read_header
from headrace.records.build import Record, build_batch


def header(sequence: int, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    batch = build_batch(
        [Record(None, b"x")], wall_ms=1, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    return read_header(batch)


def answers(beginnings: Beginnings, *sequences: int) -> list[bool]:
    return [beginnings.may_begin(header(sequence)) for sequence in sequences]


def test_the_first_batch_is_taken_when_it_comes_again() -> None:
    beginnings = Beginnings()
    assert answers(beginnings, 20, 20) == [False, True]
    assert len(beginnings) == 0


def test_one_that_was_overtaken_comes_first_after_all() -> None:
    assert answers(Beginnings(), 20, 30, 10, 20, 30, 10) == [False] * 5 + [True]


def test_what_is_under_way_behind_the_earliest_is_not_taken_for_it() -> None:
    """Five are under way, and all of them come again before the earliest does only if that was given up."""
    assert answers(Beginnings(), 10, 20, 30, 40, 50, 10) == [False] * 5 + [True]
    assert answers(Beginnings(), 10, 20, 20, 20, 20, 20, 20) == [False] * 6 + [True]


def test_producers_and_their_epochs_are_told_apart() -> None:
    beginnings = Beginnings()
    assert not beginnings.may_begin(header(20))
    assert not beginnings.may_begin(header(20, producer_id=8)) and not beginnings.may_begin(
        header(20, epoch=1)
    )
    assert beginnings.may_begin(header(20)) and beginnings.may_begin(header(20, epoch=1))
    assert beginnings.may_begin(header(20, producer_id=8))


def test_nothing_of_it_outlives_the_leadership_or_grows_without_bound() -> None:
    beginnings = Beginnings()
    for number in range(MAX_PRODUCERS):
        beginnings.may_begin(header(20, producer_id=number))
    assert len(beginnings) == MAX_PRODUCERS
    beginnings.may_begin(header(20, producer_id=MAX_PRODUCERS))
    assert len(beginnings) == 1
    beginnings.forget()
    assert len(beginnings) == 0
