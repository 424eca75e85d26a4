"""The tag index: it may forget, it may read too much, and it never steps over a batch that holds a wanted tag."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.views import tag_index
from headrace.broker.views.tag_index import RUN_BATCHES, Stretch, TagBudget, Tagged, TagIndex

A, B = 1, 2


def test_batches_without_the_tag_are_stepped_over() -> None:
    index = TagIndex(TagBudget(1_000))
    index.add(
        0,
        [
            Tagged(10, 100, A),
            Tagged(20, 100, A),
            Tagged(30, 100, B),
            Tagged(40, 100, A | B),
            Tagged(50, 100, A),
        ],
    )
    assert index.next_stretch(0, B, 1_000, 50) == Stretch(20, 200, 2)
    assert index.next_stretch(40, B, 1_000, 50) == Stretch(50, None, 1)
    assert index.next_stretch(0, A, 150, 50) == Stretch(0, 200, 0)
    assert index.next_stretch(60, A, 150, 90) == Stretch(60, None, 0), "nothing is known there"
    assert index.next_stretch(0, 4, 1_000, 20) == Stretch(20, None, 2), "not beyond what is committed"


def test_long_logs_are_kept_in_runs_and_the_budget_holds() -> None:
    budget = TagBudget(RUN_BATCHES * 2)
    index = TagIndex(budget)
    index.add(0, [Tagged(number + 1, 10, A) for number in range(RUN_BATCHES * 3)])
    assert budget.batches <= RUN_BATCHES * 2
    assert index.next_stretch(0, B, 100, 1 << 30).offset == 0, "the oldest run was forgotten"
    assert index.next_stretch(RUN_BATCHES, B, 100, 1 << 30).offset == RUN_BATCHES * 3


def test_another_history_empties_it() -> None:
    """R23."""
    budget = TagBudget(100)
    index = TagIndex(budget)
    index.valid_for(1)
    index.add(0, [Tagged(10, 100, A)])
    index.valid_for(2)
    assert budget.batches == 0 and index.next_stretch(0, B, 100, 10).skipped == 0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=25), st.data())
def test_no_batch_with_a_wanted_tag_is_skipped(batches: list[tuple[int, int]], data: st.DataObject) -> None:
    log, offset = [], 0
    for count, mask in batches:
        log.append((offset, Tagged(offset + count, 10, mask)))
        offset += count
    budget = TagBudget(data.draw(st.integers(3, 40)))
    index = TagIndex(budget)
    for _ in range(data.draw(st.integers(1, 10))):
        first = data.draw(st.integers(0, len(log) - 1))
        stop = data.draw(st.integers(first + 1, len(log)))
        index.add(log[first][0], [batch for _, batch in log[first:stop]])
        position = data.draw(st.sampled_from([start for start, _ in log]))
        wanted = data.draw(st.sampled_from([A, B]))
        found = index.next_stretch(position, wanted, 25, offset)
        skipped = [batch for start, batch in log if position <= start < found.offset]
        assert found.offset >= position and not any(batch.mask & wanted for batch in skipped)
        assert found.offset == offset or found.offset in [start for start, _ in log]
        if found.read_bytes is not None:
            ahead = [batch for start, batch in log if start >= found.offset]
            assert ahead[0].mask & wanted and found.read_bytes <= sum(batch.size for batch in ahead)
    assert budget.batches == sum(len(run.ends) for run, _ in budget._held.values())


def test_one_look_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tag_index, "MAX_SKIPPED", 10)
    index = TagIndex(TagBudget(1_000))
    index.add(0, [Tagged(number + 1, 10, A) for number in range(100)])
    assert index.next_stretch(0, B, 100, 100) == Stretch(10, 0, 10)
