"""R7, R39: a producer is told that it is out of order only by a leader that is known to lead."""

from __future__ import annotations

from headrace.broker.sequence_doubts import MAX_BATCHES, SequenceDoubts
from headrace.records.batch import BatchHeader, read_header
from headrace.records.build import Record, build_batch


def header(sequence: int, producer_id: int = 7) -> BatchHeader:
    batch = build_batch(
        [Record(None, b"x")], wall_ms=1, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )
    return read_header(batch)


def test_the_first_refusal_is_held_back_and_the_next_one_spoken_out() -> None:
    doubts = SequenceDoubts()
    assert not doubts.is_sure(header(5))
    doubts.settle(doubts.until_now())
    assert doubts.is_sure(header(5))
    assert not doubts.is_sure(header(6)), "another batch, another question"


def test_what_is_refused_while_the_coordinator_is_being_asked_is_not_settled_by_it() -> None:
    doubts = SequenceDoubts()
    doubts.is_sure(header(5))
    asked = doubts.until_now()
    doubts.is_sure(header(6))
    doubts.settle(asked)
    assert doubts.is_sure(header(5)) and not doubts.is_sure(header(6))


def test_nothing_of_it_outlives_the_leadership_or_grows_without_bound() -> None:
    doubts = SequenceDoubts()
    for number in range(3 * MAX_BATCHES):
        doubts.is_sure(header(number))
        if number % 100 == 0:
            doubts.settle(doubts.until_now())
    assert len(doubts._doubted) <= MAX_BATCHES and len(doubts._sure) <= MAX_BATCHES
    doubts.forget()
    assert doubts.until_now() == () and not doubts._sure
