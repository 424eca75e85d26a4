from __future__ import annotations

import pytest

from headrace.log.aborted import AbortedIndex, AbortedTxn


def _index(*entries: tuple[int, int, int, int]) -> AbortedIndex:
    index = AbortedIndex()
    for entry in entries:
        index.add(AbortedTxn(*entry))
    return index


def _found(index: AbortedIndex, start: int, end: int) -> list[tuple[int, int]]:
    return [(entry.producer_id, entry.first_offset) for entry in index.overlapping(start, end)]


# pid 1: 10..20, pid 2: 5..25 (longer, ends later), pid 3: 40..50
THREE = ((1, 10, 20, 5), (2, 5, 25, 26), (3, 40, 50, 51))


@pytest.mark.parametrize(
    ("start", "end", "pids"),
    [
        (0, 5, []),
        (0, 6, [2]),
        (0, 11, [2, 1]),  # sorted by first offset, not by marker
        (20, 21, [2, 1]),
        (21, 40, [2]),
        (26, 40, []),
        (26, 41, [3]),
        (0, 100, [2, 1, 3]),
        (51, 100, []),
    ],
)
def test_r48_overlap_table(start: int, end: int, pids: list[int]) -> None:
    assert [pid for pid, _ in _found(_index(*THREE), start, end)] == pids


def test_r48_truncation_makes_transactions_open_again() -> None:
    index = _index(*THREE)
    index.truncate(25)
    assert _found(index, 0, 100) == [(1, 10)]


def test_drop_before_and_replace() -> None:
    index = _index(*THREE)
    index.drop_before(21)
    assert _found(index, 0, 100) == [(2, 5), (3, 40)]
    index.replace(0, 30, [AbortedTxn(2, 15, 25, 26)])
    assert _found(index, 0, 100) == [(2, 15), (3, 40)]
    index.clear()
    assert len(index) == 0


def test_markers_only_go_up() -> None:
    with pytest.raises(ValueError, match="does not follow"):
        _index((1, 10, 20, 5), (2, 5, 20, 26))
