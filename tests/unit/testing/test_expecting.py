from __future__ import annotations

import pytest

from headrace.testing import eventually, eventually_async, received_exactly


def test_exactly_these_in_any_order_or_in_this_one() -> None:
    assert received_exactly(["b", "a"], ["a", "b"])
    assert received_exactly([{"id": 1}, {"id": 2}], [{"id": 2}, {"id": 1}])
    assert received_exactly(iter("ab"), "ab", in_order=True)
    with pytest.raises(AssertionError, match="in another order from number 1 on: 'c' instead of 'b'"):
        received_exactly("acb", "abc", in_order=True)


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(AssertionError) as told:
        received_exactly(["a", "a", "a", "x"], ["a", "b"])
    assert (
        str(told.value) == "4 received, 2 expected; missing: 'b'; too often: 'a' (2 times); unexpected: 'x'"
    )
    with pytest.raises(AssertionError, match="and 15 more"):
        received_exactly([], range(20))


def test_eventually_returns_what_it_found() -> None:
    found = iter([None, [], AssertionError("not yet"), [7]])

    def look() -> object:
        one = next(found)
        if isinstance(one, AssertionError):
            raise one
        return one

    assert eventually(look) == [7]


def test_eventually_says_what_kept_it_from_it() -> None:
    with pytest.raises(AssertionError, match="still 0 after 0 s"):
        eventually(lambda: 0, within=0)
    with pytest.raises(AssertionError, match="missing: 'b'"):
        eventually(lambda: received_exactly("a", "ab"), within=0)
    with pytest.raises(ZeroDivisionError):  # a bug of the test's own is not waited for
        eventually(lambda: 1 // 0)


async def test_eventually_in_a_coroutine() -> None:
    left = [2]

    async def look() -> bool:
        left[0] -= 1
        return left[0] < 0

    assert await eventually_async(look)
    with pytest.raises(AssertionError):
        await eventually_async(look_in_vain, within=0)


async def look_in_vain() -> bool:
    return False
