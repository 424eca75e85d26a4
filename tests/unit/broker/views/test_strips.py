"""Strips of a view: what is known is found again, batches whole and in order, within one budget for all."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.views.strips import MERGED_BLOCK_BYTES, Block, Strip, StripBudget

Batch = tuple[int, int, bytes]
"""First offset, last offset, bytes."""


def block_of(start: int, end: int, batches: list[Batch]) -> Block:
    positions, size = [], 0
    for _, _, data in batches:
        positions.append(size)
        size += len(data)
    data = b"".join(data for _, _, data in batches)
    return Block(start, end, 1, data, [last for _, last, _ in batches], positions)


def test_what_is_not_known_is_said_so() -> None:
    found = Strip(StripBudget(1 << 20)).find(5, 100, 10)
    assert (bytes(found.data), found.seen_to, found.is_full) == (b"", 5, False)


def test_blocks_that_follow_each_other_are_read_as_one() -> None:
    strip = Strip(StripBudget(1 << 20))
    strip.add(block_of(0, 10, [(2, 3, b"aa")]))
    strip.add(block_of(20, 30, [(25, 25, b"cc")]))
    strip.add(block_of(10, 20, [(10, 19, b"bb")]))
    assert bytes(strip.find(0, 100, 30).data) == b"aabbcc"
    assert strip.find(0, 100, 30).seen_to == 30
    assert bytes(strip.find(3, 100, 30).data) == b"aabbcc", "an offset inside of a batch gets the whole batch"
    assert bytes(strip.find(4, 100, 30).data) == b"bbcc"
    assert bytes(strip.find(0, 100, 20).data) == b"aabb", "nothing that reaches beyond what is committed"
    assert strip.find(0, 100, 20).seen_to == 20


def test_the_first_batch_is_whole_and_the_rest_must_fit() -> None:
    """KIP-74."""
    strip = Strip(StripBudget(1 << 20))
    strip.add(block_of(0, 30, [(0, 9, b"a" * 50), (10, 19, b"b" * 50), (20, 29, b"c" * 50)]))
    found = strip.find(0, 1, 30)
    assert (len(found.data), found.seen_to, found.is_full) == (50, 10, True)
    assert len(strip.find(0, 149, 30).data) == 100
    assert len(strip.find(0, 150, 30).data) == 150


def test_small_neighbours_become_one_block_and_large_ones_do_not() -> None:
    budget = StripBudget(1 << 30)
    strip = Strip(budget)
    for offset in range(1_000):
        strip.add(block_of(offset, offset + 1, [(offset, offset, b"x" * 10)] if offset % 100 == 0 else []))
    assert len(budget._held) == 1
    strip.add(block_of(1_000, 1_001, [(1_000, 1_000, b"y" * MERGED_BLOCK_BYTES)]))
    assert len(budget._held) == 2
    assert len(strip.find(0, 1 << 20, 2_000).data) == 100 + MERGED_BLOCK_BYTES


def test_the_budget_holds_and_what_was_used_last_stays() -> None:
    budget = StripBudget(11_000)
    strips = [Strip(budget) for _ in range(3)]
    for strip in strips:
        strip.add(block_of(0, 10, [(0, 9, b"x" * 3_000)]))
    assert budget.used_bytes > 9_000 and strips[0].find(0, 9_999, 10).data
    strips[2].add(block_of(10, 20, [(10, 19, b"y" * (MERGED_BLOCK_BYTES))]))
    assert not strips[0].find(0, 9_999, 10).data and not strips[1].find(0, 9_999, 10).data
    assert strips[2].find(10, 1 << 20, 20).data, "the newest stays, however large: somebody waits for it"
    strips[2].clear()
    assert budget.used_bytes == 0


def test_behind_a_first_batch_that_is_larger_than_asked_for_there_is_no_room() -> None:
    """KIP-74 gives the first one whatever its size; the next block must not be read backwards for it."""
    strip = Strip(StripBudget(1 << 30))
    strip.add(block_of(0, 10, [(0, 9, b"x" * MERGED_BLOCK_BYTES)]))
    strip.add(block_of(10, 30, [(10, 19, b"y" * MERGED_BLOCK_BYTES), (20, 29, b"z")]))
    found = strip.find(0, 1, 30)
    assert bytes(found.data) == b"x" * MERGED_BLOCK_BYTES
    assert found.seen_to == 10 and found.is_full


def test_another_history_of_the_log_empties_the_strip() -> None:
    """R23: truncation, compaction and a new leadership leave nothing of what was known."""
    budget = StripBudget(1 << 20)
    strip = Strip(budget)
    strip.valid_for(("id", 1, 0))
    strip.add(block_of(0, 10, [(0, 9, b"x")]))
    strip.valid_for(("id", 1, 0))
    assert strip.find(0, 10, 10).data
    strip.valid_for(("id", 2, 0))
    assert not strip.find(0, 10, 10).data and budget.used_bytes == 0


def test_what_retention_passed_is_forgotten() -> None:
    budget = StripBudget(1 << 30)
    strip = Strip(budget)
    strip.add(block_of(0, 10, [(0, 9, b"x" * MERGED_BLOCK_BYTES)]))
    strip.add(block_of(10, 20, [(10, 19, b"y" * MERGED_BLOCK_BYTES)]))
    strip.forget_below(15)
    assert len(budget._held) == 1
    assert strip.find(15, 1 << 30, 20).data


@st.composite
def _source(draw: Any) -> list[tuple[Batch, bool]]:
    """Batches of a log without holes, and whether each matches."""
    offset = 0
    batches: list[tuple[Batch, bool]] = []
    for _ in range(draw(st.integers(1, 20))):
        count = draw(st.integers(1, 5))
        data = bytes([len(batches)]) * draw(st.integers(1, 40))
        batches.append(((offset, offset + count - 1, data), draw(st.booleans())))
        offset += count
    return batches


@settings(max_examples=150, deadline=None)
@given(_source(), st.data(), st.integers(100, 5_000))
def test_whatever_is_found_is_what_the_log_holds(
    source: list[tuple[Batch, bool]], data: st.DataObject, budget_bytes: int
) -> None:
    budget = StripBudget(budget_bytes)
    strip = Strip(budget)
    end = source[-1][0][1] + 1
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()):
            first = data.draw(st.integers(0, len(source) - 1))
            stop = data.draw(st.integers(first + 1, len(source)))
            part = source[first:stop]
            strip.add(
                block_of(part[0][0][0], part[-1][0][1] + 1, [batch for batch, matches in part if matches])
            )
        offset, limit = data.draw(st.integers(0, end)), data.draw(st.integers(1, 200))
        upto = data.draw(st.sampled_from([end, *(batch[0] for batch, _ in source)]))
        found = strip.find(offset, limit, upto)
        expected = [
            batch[2]
            for batch, matches in source
            if matches and batch[1] >= offset and batch[1] < min(found.seen_to, upto)
        ]
        assert bytes(found.data) == b"".join(expected)
        assert len(found.data) <= limit or len(expected) == 1
        assert offset <= found.seen_to <= max(offset, upto) or found.seen_to == offset
    assert budget.used_bytes == sum(block.cost for block, _ in budget._held.values())


def test_waiters_are_woken_once() -> None:
    class Sleeper:
        woken = 0

        def wake(self) -> None:
            self.woken += 1

    strip, sleeper = Strip(StripBudget(1)), Sleeper()
    strip.waiters[sleeper] = None
    strip.wake()
    strip.wake()
    assert sleeper.woken == 1


def test_how_far_nothing_matches() -> None:
    """For lag: what can't match is no lag."""
    strip = Strip(StripBudget(1 << 20))
    strip.add(block_of(0, 50, [(10, 12, b"x" * MERGED_BLOCK_BYTES)]))
    strip.add(block_of(50, 60, []))
    assert strip.quiet_to(0) == 0 and strip.quiet_to(12) == 12
    assert strip.quiet_to(13) == 60 and strip.quiet_to(55) == 60 and strip.quiet_to(70) == 70
