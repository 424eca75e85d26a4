"""A timetable against a dictionary, and what a pending entry costs."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.queues import agenda, delay
from headrace.queues.delay import LAST_MS, Timetable

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 3), st.integers(0, 50)),
        st.tuples(st.just("add all"), st.integers(1, 7), st.integers(0, 50)),
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
        patch.setattr(agenda, "_RUN_KEYS", 4)
        patch.setattr(agenda, "_SPARSE_KEYS", 2)
        patch.setattr(agenda, "_SPARSE_RUNS", 2)
        ours, theirs, offset = Timetable(), dict[int, int](), 0
        for what, one, two in steps:
            match what:
                case "add":
                    offset += one
                    ours.add(offset, two, offset % 3)
                    theirs[offset] = two
                case "add all":
                    offset += 3 - offset % 3  # then all of them have lane 0
                    offsets = range(offset, offset + 3 * one, 3)
                    times = [(two + 17 * number) % 51 for number in range(one)]
                    ours.add_all(offsets, times, 0)
                    theirs.update(zip(offsets, times, strict=True))
                    offset = offsets[-1]
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


def test_moving_one_entry_for_ever_does_not_grow_the_agenda() -> None:
    ours = Timetable()
    ours.add(1, 10, 0)
    for time in range(10_000):
        ours.move(1, 20_000 - time)
    assert len(ours._agenda) < 2_000
    assert ours.head_ms() == 10_001


def test_an_entry_that_was_moved_away_is_not_due_at_its_old_time() -> None:
    ours = Timetable()
    ours.add(1, 5, 0)
    ours.add(2, 10, 1)
    ours.move(2, 40)
    assert ours.pop_due(20, 10) == [(1, 0)]
    assert ours.pop_due(40, 10) == [(2, 1)]


def test_no_upper_limit() -> None:
    ours = Timetable()
    ours.add(1, 1 << 80, 0)
    assert ours.time_of(1) == LAST_MS == ours.head_ms()


def test_removing_many_does_not_leave_their_keys() -> None:
    ours = Timetable()
    ours.add_all(range(30_000), range(1, 30_001), 0)
    for offset in range(1_000, 30_000):
        ours.remove(offset)
    assert len(ours._agenda) < 2 * ours.count + 2 * 2_048
    assert ours.pop_due(500, 10_000) == [(offset, 0) for offset in range(500)]


def test_sparse_runs_are_pooled() -> None:
    """One in a thousand waits for a year: what is left of each run must not keep a run for itself."""
    ours, year_ms, added = Timetable(), 31_536_000_000, 60_000
    for offset in range(added):
        ours.add(offset, year_ms if offset % 1_000 == 0 else offset, 0)
        ours.pop_due(offset - 50, 100)
    assert ours.count < 60 + 100
    assert len(ours._agenda._runs) <= 10


def test_the_garbage_collector_does_not_walk_through_what_is_pending() -> None:
    """A million numbers in a list cost each full collection 90 ms, in which nobody is served."""
    ours = Timetable()
    for offset in range(50_000):
        ours.add(offset, 1_700_000_000_000 + (offset * 7919) % 1_000_003, 0)
    seen, left = {id(ours)}, [ours]
    while left:
        for found in gc.get_referents(left.pop()):
            if id(found) not in seen and not isinstance(found, type):
                seen.add(id(found))
                left.append(found)
    assert len(seen) < 6_000


def test_a_pending_entry_costs_less_than_50_bytes() -> None:
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
    assert cost < 50
