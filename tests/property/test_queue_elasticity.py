"""A queue's partitions follow its load, within bounds, without going to and fro (Q11)."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.queues.elastic import Elastic, Elasticity, QueuePressure

SECOND = 1_000


def run(elastic: Elastic, active: int, loads: list[tuple[int, int]]) -> list[int]:
    """(messages in this second, ready) second by second; how many partitions there are after each."""
    elasticity, sent, history = Elasticity(), 0, []
    for second, (arrived, ready) in enumerate(loads):
        sent += arrived
        active = elasticity.step(elastic, active, QueuePressure(sent, ready), second * SECOND)
        history.append(active)
    return history


QUICK = Elastic(max_partitions=8, rate=100, backlog=1_000, grow_after_ms=3_000, shrink_after_ms=10_000)


def test_a_busy_queue_grows_and_an_idle_one_shrinks() -> None:
    history = run(QUICK, 1, [(700, 0)] * 20 + [(5, 0)] * 60)
    assert history[:20].count(1) >= 3, "not at the first sight of it"
    assert history[19] == 8
    assert history[-1] == 1
    assert sorted(set(history[20:]), reverse=True) == [8, 4, 2, 1], "step by step"


def test_a_backlog_that_nobody_works_off_counts_too() -> None:
    assert run(QUICK, 1, [(0, 5_000)] * 30)[-1] == 8


def test_a_short_burst_changes_nothing() -> None:
    assert set(run(QUICK, 2, [(60, 0), (900, 0), (900, 0), (60, 0)] * 20)) == {2}


def test_other_bounds_are_kept_at_once() -> None:
    assert run(Elastic(max_partitions=4, min_partitions=2), 1, [(0, 0)] * 2)[-1] == 2
    assert run(Elastic(max_partitions=4), 8, [(0, 0)] * 2)[-1] == 4


loads = st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 20_000)), max_size=120)
elastics = st.builds(
    lambda low, more, grow, shrink: Elastic(
        max_partitions=low + more, min_partitions=low, rate=100, backlog=1_000,
        grow_after_ms=grow * SECOND, shrink_after_ms=shrink * SECOND,
    ),
    st.integers(1, 4), st.integers(0, 12), st.integers(0, 5), st.integers(1, 20),
)  # fmt: skip


@given(elastics, loads)
def test_always_within_bounds_and_never_hasty(elastic: Elastic, given_loads: list[tuple[int, int]]) -> None:
    history = run(elastic, elastic.min_partitions, given_loads)
    assert all(elastic.min_partitions <= active <= elastic.max_partitions for active in history)
    changed_at = 0
    for second in range(1, len(history)):
        if history[second] != history[second - 1]:
            wait = elastic.shrink_after_ms if history[second] < history[second - 1] else elastic.grow_after_ms
            assert (second - changed_at) * SECOND >= wait
            changed_at = second


@given(elastics, st.integers(0, 3_000), st.integers(0, 20_000), st.integers(1, 16))
def test_a_steady_load_comes_to_rest(elastic: Elastic, rate: int, ready: int, active: int) -> None:
    history = run(elastic, active, [(rate, ready)] * 300)
    assert len(set(history[-100:])) == 1
    directions = {
        (after > before) - (after < before) for before, after in pairwise(history[1:]) if after != before
    }
    assert len(directions) <= 1, "one way only"
