"""A timetable against a dictionary, and what a pending entry costs."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.queues import delay
from headrace.queues.delay import LAST_MS, Timetable

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 3), st.integers(0, 50)),
        st.tuples(st.just("move"), st.integers(0, 60), st.integers(0, 50)),
        st.tuples(st.just("remove"), st.integers(0, 60), st.just(0)),
        st.tuples(st.just("pop"), st.integers(0, 50), st.integers(0, 5)),
    ),
    max_size=80,
)


@given(steps=steps)
def test_behaves_like_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delay, "_CHUNK_ENTRIES", 4)
        patch.setattr(delay, "_STALE_SLACK", 3)
        ours, theirs, offset = Timetable(), dict[int, int](), 0
        for what, one, two in steps:
            match what:
                case "add":
                    offset += one
                    ours.add(offset, two, offset % 3)
                    theirs[offset] = two
                case "move":
                    ours.move(one, two)
                    if one in theirs:
                        theirs[one] = two
                case "remove":
                    assert ours.remove(one) == (one % 3 if one in theirs else None)
                    theirs.pop(one, None)
                case "pop":
                    popped = ours.pop_due(one, two)
                    due = sorted((time, at) for at, time in theirs.items() if time <= one)[:two]
                    assert [entry.offset for entry in popped] == [at for _, at in due]
                    assert all(entry.lane == entry.offset % 3 for entry in popped)
                    for entry in popped:
                        del theirs[entry.offset]
            assert ours.count == len(theirs)
            assert ours.head_ms() == min(theirs.values(), default=None)
            assert ours.items(0, 1000) == sorted(theirs.items())
            assert ours.items(5, 2) == sorted((at, time) for at, time in theirs.items() if at >= 5)[:2]
            assert sorted(ours.due(25, 1000)) == sorted(at for at, time in theirs.items() if time <= 25)
            assert all(ours.time_of(at) == theirs.get(at) for at in range(20))


def test_moving_one_entry_for_ever_does_not_grow_the_heap() -> None:
    ours = Timetable()
    ours.add(1, 10, 0)
    for time in range(10_000):
        ours.move(1, 20_000 - time)
    assert len(ours._heap) < 2_000
    assert ours.head_ms() == 10_001


def test_no_upper_limit() -> None:
    ours = Timetable()
    ours.add(1, 1 << 80, 0)
    assert ours.time_of(1) == LAST_MS == ours.head_ms()


def test_a_pending_entry_costs_less_than_100_bytes() -> None:
    """Q7: a million pending; 20,000 here, because the price per entry is the same."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        ours = Timetable()
        for offset in range(20_000):
            ours.add(offset, 1_700_000_000_000 + (offset * 7919) % 1_000_003, 0)
        cost = (tracemalloc.get_traced_memory()[0] - before) / 20_000
    finally:
        tracemalloc.stop()
    assert cost < 100
