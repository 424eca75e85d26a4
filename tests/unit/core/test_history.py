"""Section 4 of the console's rules: numbers over time in fixed memory; a gap is a gap, and the busiest have more."""

from __future__ import annotations

from headrace.core.history import (
    COARSE_S,
    COARSE_STEPS,
    FINE_STEPS,
    KEPT_THINGS,
    SMALL_STEPS,
    WHOLE_THINGS,
    History,
    Ring,
    Series,
)


def test_a_ring_forgets_what_is_older_than_it_is_long() -> None:
    ring = Ring(4)
    for step in range(10):
        ring.put(step, float(step))
    assert ring.between(4, 12) == [None, None, 6.0, 7.0, 8.0, 9.0, None, None]
    assert ring.latest == 9.0


def test_steps_that_nobody_wrote_are_gaps_and_not_zeros() -> None:
    ring = Ring(5)
    ring.put(1, 1.0)
    ring.put(4, 4.0)
    assert ring.between(0, 6) == [None, 1.0, None, None, 4.0, None]
    ring.put(1_000, 7.0)  # everything before is long gone
    assert ring.between(995, 1_001) == [None, None, None, None, None, 7.0]
    assert ring.between(0, 6) == [None] * 6


def test_a_clock_that_goes_back_overwrites_nothing() -> None:
    ring = Ring(5)
    ring.put(7, 7.0)
    ring.put(5, 5.0)
    assert ring.between(5, 8) == [None, None, 7.0]


def test_an_empty_ring_knows_nothing() -> None:
    assert Ring(3).latest is None and Ring(3).between(0, 2) == [None, None]


def test_the_coarse_value_is_the_mean_of_its_seconds() -> None:
    series = Series(whole=True)
    for second in range(2 * COARSE_S):
        series.put(second, float(second))
    assert series.read(COARSE_S, 0, 2 * COARSE_S) == [7.0, 22.0]
    assert series.read(1, 13, 16) == [13.0, 14.0, 15.0]


def test_a_small_series_has_a_quarter_of_an_hour_in_steps_of_fifteen_seconds() -> None:
    series = Series(whole=False)
    assert series.steps == (COARSE_S,) and series.byte_count == SMALL_STEPS * 4
    assert Series(whole=True).byte_count == (FINE_STEPS + COARSE_STEPS) * 4


def test_growing_keeps_what_was_known() -> None:
    series = Series(whole=False)
    for second in range(300):
        series.put(second, 1.0 if second < 150 else 3.0)
    whole = series.grown(True)
    assert whole.steps == (1, COARSE_S) and whole.read(COARSE_S, 0, 300) == series.read(COARSE_S, 0, 300)
    assert whole.grown(False).read(COARSE_S, 0, 300) == series.read(COARSE_S, 0, 300)


def test_the_busiest_are_whole_and_two_alike_do_not_take_turns() -> None:
    history = History(["broker"])
    names = [f"topic:t{number:03}" for number in range(200)]
    for name in ["broker", *names]:
        history.put(name, 1, {"in": 1.0})
    history.choose({name: 1000.0 - place for place, name in enumerate(names)})
    assert _whole(history, names) == set(names[:WHOLE_THINGS]) and _is_whole(history, "broker")
    # Number 49 falls to place 60, and 55 others overtake it: it stays, because it is among the first seventy-five.
    scores = {name: 1000.0 - place for place, name in enumerate(names)}
    scores[names[49]] = 1000.0 - 60.5
    history.choose(scores)
    assert _whole(history, names) == set(names[:WHOLE_THINGS])
    scores[names[49]] = 1000.0 - KEPT_THINGS - 5.5
    history.choose(scores)
    assert _whole(history, names) == set(names[:49]) | {names[50]}


def test_things_that_are_quiet_are_not_made_whole() -> None:
    history = History()
    history.put("topic:quiet", 1, {"in": 0.0})
    history.choose({"topic:quiet": 0.0})
    assert not _is_whole(history, "topic:quiet")


def test_what_is_gone_is_forgotten() -> None:
    history = History(["broker"])
    history.put("broker", 10, {"in": 1.0})
    history.put("topic:old", 10, {"in": 1.0})
    history.put("topic:new", 1_000, {"in": 1.0})
    history.forget(900)
    assert history.find("topic:old", "in") is None and history.find("topic:new", "in") is not None


def test_ten_thousand_things_take_less_than_14_mb() -> None:
    history = History(["broker"])
    scores = {f"topic:t{number}": float(number + 1) for number in range(10_000)}
    for name in scores:
        history.put(name, 1, {"in": 1.0, "in_bytes": 1.0})
    history.choose(scores)
    assert history.byte_count <= 14_000_000


def _is_whole(history: History, thing: str) -> bool:
    series = history.find(thing, "in")
    assert series is not None
    return 1 in series.steps


def _whole(history: History, names: list[str]) -> set[str]:
    return {name for name in names if _is_whole(history, name)}
