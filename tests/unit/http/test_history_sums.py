"""Numbers over time of several brokers: what one of them did not count is a gap, and not a fall."""

from __future__ import annotations

from headrace.http.rest.live import added


def test_what_one_broker_missed_is_a_gap() -> None:
    assert added([1.0, 1.0, 1.0, 1.0], [2.0, None, 2.0, 2.0], 0) == [3.0, None, 3.0, 3.0]
    assert added([1.0, None, 1.0], [2.0, 2.0, 2.0], 0) == [3.0, None, 3.0]


def test_a_broker_that_began_later_is_no_gap_before() -> None:
    assert added([1.0, 1.0, 1.0], [None, None, 2.0], 0) == [1.0, 1.0, 3.0]
    assert added([None, None, None], [None, 2.0, 2.0], 0) == [None, 2.0, 2.0]


def test_a_broker_that_was_asked_a_moment_later_begins_a_step_later() -> None:
    assert added([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], 1) == [1.0, 3.0, 3.0]
    assert added([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], -1) == [3.0, 3.0, 1.0], (
        "the step that it was not asked for"
    )
