"""W18: a session that nobody touches ends at the broker, however often its open page asks for numbers."""

from __future__ import annotations

from headrace.http.idling import MAX_SESSIONS, Idling

HALF_AN_HOUR = 1_800_000


class Clock:
    def __init__(self) -> None:
        self.ms = 5

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return self.ms


def test_asking_is_no_touch_and_a_touch_is_one() -> None:
    clock = Clock()
    idling = Idling(clock, HALF_AN_HOUR)
    for _ in range(10):
        assert not idling.has_ended("a", is_touch=True)
        clock.ms += HALF_AN_HOUR - 1
    assert not idling.has_ended("a", is_touch=True)
    for _ in range(29):
        clock.ms += 60_000
        assert not idling.has_ended("a", is_touch=False)
    clock.ms += 60_000
    assert idling.has_ended("a", is_touch=True), "a touch comes too late for what has ended"


def test_sessions_are_each_their_own_and_zero_is_never() -> None:
    clock = Clock()
    idling, never = Idling(clock, HALF_AN_HOUR), Idling(clock, 0)
    assert not idling.has_ended("a", is_touch=True) and not never.has_ended("a", is_touch=True)
    clock.ms += HALF_AN_HOUR
    assert not idling.has_ended("b", is_touch=False), "it begins when it is first seen"
    assert idling.has_ended("a", is_touch=False)
    assert not never.has_ended("a", is_touch=False)


def test_its_memory_is_bounded_and_forgets_the_longest_untouched() -> None:
    clock = Clock()
    idling = Idling(clock, HALF_AN_HOUR)
    for number in range(MAX_SESSIONS + 1):
        idling.has_ended(str(number), is_touch=True)
    clock.ms += HALF_AN_HOUR
    assert not idling.has_ended("0", is_touch=False), "forgotten: it begins anew"
    assert idling.has_ended("2", is_touch=False)
