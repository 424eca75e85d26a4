"""R39: what follows a refused batch on its connection, as a pure machine (by frames: tests/client/test_refused_batches.py)."""

from __future__ import annotations

from typing import Any

from headrace.kafka.refusals import MAX_PLACES, Refusals
from headrace.records.build import Record, build_batch


def batch(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> memoryview:
    rows = [Record(None, b"x", (), 0)] * 10
    numbers: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return memoryview(bytearray(build_batch(rows, wall_ms=0, **numbers)))


def refused(*sequences: int) -> Refusals:
    refusals = Refusals()
    for sequence in sequences:
        refusals.add("t", 0, batch(sequence))
    return refusals


def test_what_was_sent_before_or_elsewhere_is_not_barred() -> None:
    refusals = refused(20)
    assert not refusals.bar("u", 0, batch(30)) and not refusals.bar("t", 1, batch(30))
    assert not refusals.bar("t", 0, batch(30, producer_id=8)) and not refusals.bar("t", 0, batch(30, epoch=1))
    assert refusals.bar("t", 0, batch(30))
    assert not refusals.bar("t", 0, batch(10))


def test_the_refused_batch_itself_lifts_the_bar_and_may_be_refused_again() -> None:
    refusals = refused(20)
    assert refusals.bar("t", 0, batch(30))
    assert not refusals.bar("t", 0, batch(20)) and len(refusals) == 0
    assert not refusals.bar("t", 0, batch(30))
    refusals.add("t", 0, batch(20))
    assert [refusals.bar("t", 0, batch(30)) for _ in range(5)] == [True] * 4 + [False]


def test_the_earliest_refusal_counts_and_those_behind_it_do_not_prolong_it() -> None:
    refusals = refused(20, 30, 40)
    assert not refusals.bar("t", 0, batch(20))
    refusals = refused(30, 20)
    assert refusals.bar("t", 0, batch(30))
    refusals.add("t", 0, batch(30))
    assert [refusals.bar("t", 0, batch(30)) for _ in range(4)] == [True] * 3 + [False]


def test_only_batches_of_idempotent_producers_have_an_order() -> None:
    refusals = Refusals()
    for nothing in (None, b"", memoryview(bytearray(80)), batch(-1, producer_id=-1, epoch=-1)):
        refusals.add("t", 0, nothing)
        assert not refusals.bar("t", 0, nothing)
    refusals.add("t", 0, batch(-1))
    assert len(refusals) == 0


def test_a_connection_leaves_no_more_behind_than_it_may() -> None:
    refusals = Refusals()
    for number in range(MAX_PLACES + 1):
        refusals.add("t", number, batch(0))
    assert len(refusals) == MAX_PLACES
    assert not refusals.bar("t", 0, batch(10)) and refusals.bar("t", 1, batch(10))
