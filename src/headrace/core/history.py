"""Machine: numbers over time in fixed memory, without a database (section 4 of the console's rules).

A ring has one value for each step of time; a step that nobody wrote is a gap and not a zero, so a restart or a pause shows as what it
was. Values are rates and levels, never counters. A *whole* series has a second's resolution for a quarter of an hour and
fifteen seconds' for a day; a *small* one has the last quarter of an hour in steps of fifteen seconds. Which things have whole series is chosen
anew every minute, with hysteresis, so that two things of the same size do not take turns.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from math import nan

FINE_S, FINE_STEPS = 1, 900
COARSE_S, COARSE_STEPS = 15, 5_760
SMALL_STEPS = 60
WHOLE_THINGS = 50
KEPT_THINGS = 75
"""Who is among so many stays whole; only who is not makes room."""


class Ring:
    __slots__ = ("_last", "_values")

    def __init__(self, steps: int) -> None:
        self._values = array("f", [nan]) * steps
        self._last = -1
        """The step that was written last; -1: none."""

    def put(self, step: int, value: float) -> None:
        values, last = self._values, self._last
        steps = len(values)
        if step < last:
            return  # the clock went back: what is written stays
        if last >= 0 and step > last + 1:
            for missed in range(max(last + 1, step - steps), step):
                values[missed % steps] = nan
        self._last = step
        values[step % steps] = value

    def between(self, first: int, end: int) -> list[float | None]:
        """One value a step from `first` up to and without `end`; None where there is none."""
        values, last = self._values, self._last
        steps = len(values)
        found: list[float | None] = []
        for step in range(first, end):
            value = values[step % steps] if last - steps < step <= last else nan
            found.append(None if value != value else value)
        return found

    @property
    def latest(self) -> float | None:
        if self._last < 0:
            return None
        value = self._values[self._last % len(self._values)]
        return None if value != value else value

    @property
    def byte_count(self) -> int:
        return len(self._values) * self._values.itemsize


class Series:
    """One number of one thing. The coarse value of a step is the mean of what was written in it."""

    __slots__ = ("_coarse", "_count", "_fine", "_step", "_sum")

    def __init__(self, *, whole: bool) -> None:
        self._fine = Ring(FINE_STEPS) if whole else None
        self._coarse = Ring(COARSE_STEPS if whole else SMALL_STEPS)
        self._step = -1
        self._sum = 0.0
        self._count = 0

    def put(self, second: int, value: float) -> None:
        if self._fine is not None:
            self._fine.put(second, value)
        step = second // COARSE_S
        if step != self._step:
            self._step, self._sum, self._count = step, 0.0, 0
        self._sum += value
        self._count += 1
        self._coarse.put(step, self._sum / self._count)

    def read(self, step_s: int, first_s: int, end_s: int) -> list[float | None]:
        """`step_s` is one of `steps`; both ends are multiples of it."""
        ring = self._fine if step_s == FINE_S and self._fine is not None else self._coarse
        return ring.between(first_s // step_s, end_s // step_s)

    @property
    def steps(self) -> tuple[int, ...]:
        return (COARSE_S,) if self._fine is None else (FINE_S, COARSE_S)

    def grown(self, whole: bool) -> Series:
        """The same numbers with more, or with less, room."""
        other = Series(whole=whole)
        ring = self._coarse
        end = ring._last + 1
        for step, value in enumerate(ring.between(end - SMALL_STEPS, end), end - SMALL_STEPS):
            if value is not None and step >= 0:
                other._coarse.put(step, value)
        other._step, other._sum, other._count = self._step, self._sum, self._count
        return other

    @property
    def byte_count(self) -> int:
        return self._coarse.byte_count + (0 if self._fine is None else self._fine.byte_count)


class History:
    """Series by thing (`topic:orders`) and measure (`in`)."""

    def __init__(self, always_whole: Iterable[str] = ()) -> None:
        self._always = frozenset(always_whole)
        self._series: dict[str, dict[str, Series]] = {}
        self._seen: dict[str, int] = {}
        self._whole: set[str] = set(self._always)

    def put(self, thing: str, second: int, values: Mapping[str, float]) -> None:
        self._seen[thing] = second
        held = self._series.get(thing)
        if held is None:
            held = self._series[thing] = {}
        for measure, value in values.items():
            series = held.get(measure)
            if series is None:
                series = held[measure] = Series(whole=thing in self._whole)
            series.put(second, value)

    def find(self, thing: str, measure: str) -> Series | None:
        return self._series.get(thing, {}).get(measure)

    def choose(self, scores: Mapping[str, float]) -> None:
        """The busiest are whole from now on. `scores` is of everything that competes."""
        ranked = sorted(scores, key=lambda thing: (-scores[thing], thing))
        kept = [thing for thing in ranked[:KEPT_THINGS] if thing in self._whole and scores[thing] > 0]
        chosen = dict.fromkeys(kept[:WHOLE_THINGS])
        for thing in ranked:
            if len(chosen) >= WHOLE_THINGS or scores[thing] <= 0:
                break
            chosen[thing] = None
        wanted = self._always | chosen.keys()
        for thing in self._whole ^ wanted:
            held = self._series.get(thing)
            if held is not None:
                self._series[thing] = {m: one.grown(thing in wanted) for m, one in held.items()}
        self._whole = set(wanted)

    def forget(self, before_s: int) -> None:
        """Things of which nobody has written since: deleted, or moved to another broker."""
        for thing in [thing for thing, seen in self._seen.items() if seen < before_s]:
            del self._seen[thing]
            self._series.pop(thing, None)
            if thing not in self._always:
                self._whole.discard(thing)

    @property
    def byte_count(self) -> int:
        return sum(one.byte_count for held in self._series.values() for one in held.values())
