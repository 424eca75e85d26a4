"""Waiters leave once: released, expired or failed (R18)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.replication.acks import Acks


def test_released_in_the_order_of_offsets() -> None:
    acks: Acks[str] = Acks()
    acks.add("b", 20, 1_000)
    acks.add("a", 10, 1_000)
    acks.add("c", 30, 1_000)
    assert acks.release(9) == []
    assert acks.release(20) == ["a", "b"]
    assert acks.release(20) == []
    assert len(acks) == 1


def test_expired_ones_are_not_released_later() -> None:
    acks: Acks[str] = Acks()
    acks.add("late", 10, 500)
    acks.add("patient", 10, 900)
    assert acks.next_deadline() == 500
    assert acks.expire(499) == []
    assert acks.expire(500) == ["late"]
    assert acks.next_deadline() == 900
    assert acks.release(10) == ["patient"]
    assert acks.next_deadline() is None


def test_everyone_fails_with_the_leadership() -> None:
    acks: Acks[str] = Acks()
    acks.add("a", 10, 500)
    acks.add("b", 5, 500)
    assert acks.fail_all() == ["a", "b"]
    assert acks.fail_all() == acks.release(100) == acks.expire(10_000) == []
    assert acks.next_deadline() is None


def test_it_does_not_keep_what_has_left() -> None:
    acks: Acks[int] = Acks()
    for number in range(10_000):
        acks.add(number, number + 1, 1_000_000)
        assert acks.release(number + 1) == [number]
    assert len(acks._by_deadline) < 200


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 20), st.integers(0, 20)),
            st.tuples(st.just("release"), st.integers(0, 20), st.just(0)),
            st.tuples(st.just("expire"), st.integers(0, 20), st.just(0)),
            st.tuples(st.just("fail"), st.just(0), st.just(0)),
        ),
        max_size=200,
    )
)
def test_like_a_list(actions: list[tuple[str, int, int]]) -> None:
    acks: Acks[int] = Acks()
    model: dict[int, tuple[int, int]] = {}
    for number, (action, first, second) in enumerate(actions):
        match action:
            case "add":
                acks.add(number, first, second)
                model[number] = (first, second)
                continue
            case "release":
                gone, expected = (
                    acks.release(first),
                    [n for n, (offset, _) in model.items() if offset <= first],
                )
            case "expire":
                gone, expected = acks.expire(first), [n for n, (_, at_ms) in model.items() if at_ms <= first]
            case _:
                gone, expected = acks.fail_all(), list(model)
        assert sorted(gone) == expected
        for waiter in gone:
            del model[waiter]
        assert len(acks) == len(model)
        assert acks.next_deadline() == min((at_ms for _, at_ms in model.values()), default=None)
