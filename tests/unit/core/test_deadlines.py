"""Deadlines against a dumb model: a dictionary that is searched from end to end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.deadlines import Deadlines
from headrace.groups.deadlines import Deadline

KEYS = [Deadline("session", "g", name) for name in "abcd"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(KEYS), st.integers(0, 20)),
        st.tuples(st.just("cancel"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.just("due"), st.sampled_from(KEYS), st.integers(0, 20)),
        st.tuples(st.just("next"), st.sampled_from(KEYS), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_like_a_dictionary_that_is_searched(steps: list[tuple[str, Deadline, int]]) -> None:
    deadlines, model = Deadlines[Deadline](), dict[Deadline, int]()
    for verb, key, at_ms in steps:
        if verb == "set":
            deadlines.set(key, at_ms)
            model[key] = at_ms
        elif verb == "cancel":
            deadlines.cancel(key)
            model.pop(key, None)
        elif verb == "due":
            expected = sorted((at, key) for key, at in model.items() if at <= at_ms)
            assert deadlines.due(at_ms) == [key for _, key in expected]
        assert deadlines.next_ms() == min(model.values(), default=None)
        assert (len(deadlines), set(deadlines)) == (len(model), set(model))


def test_heartbeats_do_not_grow_the_heap() -> None:
    deadlines: Deadlines[Deadline] = Deadlines()
    for now_ms in range(10_000):
        deadlines.set(KEYS[0], now_ms + 10_000)
    assert len(deadlines._heap) == 1
    assert deadlines.next_ms() == 19_999
