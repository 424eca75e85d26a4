"""Sets of offsets against Python's own sets."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from headrace.queues.ranges import OffsetSet, Runs, as_ranges

# Around a page border, where the paged set has to stitch.
offsets = st.one_of(st.integers(0, 40), st.integers(65_530, 65_545), st.integers(131_066, 131_080))
operations = st.lists(st.tuples(st.booleans(), offsets, st.integers(1, 9)), max_size=40)


def expand(ranges: list[tuple[int, int]]) -> list[int]:
    return [offset for first, end in ranges for offset in range(first, end)]


@given(operations=operations, paged=st.booleans())
def test_behaves_like_a_set(operations: list[tuple[bool, int, int]], paged: bool) -> None:
    ours: OffsetSet | Runs = OffsetSet() if paged else Runs()
    theirs: set[int] = set()
    for add, first, size in operations:
        span = set(range(first, first + size))
        if add:
            assert ours.add(first, first + size) == len(span - theirs)
            theirs |= span
        else:
            assert ours.discard(first, first + size) == len(span & theirs)
            theirs -= span
        assert ours.count == len(theirs)
        assert expand(list(ours.runs())) == sorted(theirs)
        assert ours.first() == min(theirs, default=None)
        assert all((offset in ours) == (offset in theirs) for offset in range(first - 2, first + size + 2))


@given(operations=operations, limit=st.integers(0, 20), first=offsets, size=st.integers(0, 30))
def test_questions(operations: list[tuple[bool, int, int]], limit: int, first: int, size: int) -> None:
    ours = OffsetSet()
    theirs: set[int] = set()
    for _, start, length in operations:
        ours.add(start, start + length)
        theirs |= set(range(start, start + length))
    assert expand(ours.head(limit)) == sorted(theirs)[:limit]
    odd = sorted(offset for offset in theirs if offset % 2)
    assert expand(ours.head(limit, lambda offset: offset % 2 == 0)) == odd[:limit]
    assert expand(list(ours.gaps(first, first + size))) == sorted(set(range(first, first + size)) - theirs)
    assert expand(list(ours.runs(first))) == sorted(offset for offset in theirs if offset >= first)
    end = ours.run_from(first)
    if first not in theirs:
        assert end is None
    else:
        assert end is not None and end not in theirs and set(range(first, end)) <= theirs
    again = OffsetSet()
    again.load_edges(array("q", ours.edges()))
    assert list(again.runs()) == list(ours.runs()) and again.count == ours.count


@given(st.sets(st.integers(0, 60)))
def test_as_ranges(offsets: set[int]) -> None:
    ranges = as_ranges(offsets)
    assert expand(list(ranges)) == sorted(offsets)
    assert all(ranges[at][1] < ranges[at + 1][0] for at in range(len(ranges) - 1))


def test_a_pick_does_not_look_past_a_million_refused() -> None:
    ours = OffsetSet()
    ours.add(0, 1_000_000)
    asked = 0

    def refuse(offset: int) -> bool:
        nonlocal asked
        asked += 1
        return True

    assert ours.head(10, refuse) == []
    assert asked < 1_100
