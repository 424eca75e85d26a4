"""Codec: where to start reading and where to move a group, as people write it at every door (F14).

start · end · -10 (the last ten) · 42 (offset 42) · @15m (that long ago) · @2026-11-01 · @2026-11-01T12:30 (UTC unless
it says otherwise) · @1793000000000 (milliseconds since 1970) · and for groups +10 (ten on from where it is)
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from headrace.core.units import is_digits, parse_duration_ms
from headrace.records.filters.times import rfc3339_ms

_EPOCH_DIGITS = 10
"""`@` with this many digits or more is a point in time, not a duration."""
_LATEST_MS = 1 << 62
"""Times and offsets are 64 bits on the wire."""


class Anchor(Enum):
    START = "start"
    END = "end"
    LAST = "last"
    OFFSET = "offset"
    SINCE = "since"
    ON = "on"


class Position(NamedTuple):
    anchor: Anchor
    value: int = 0
    """LAST: how many. OFFSET: which. SINCE: milliseconds since 1970. ON: how many on from where a group is."""

    def offset(
        self, start: int, end: int, *, committed: int | None = None, at_time: int | None = None
    ) -> int:
        """In a partition that has the offsets from `start` to before `end`. `at_time`: what the partition has for SINCE, None when all is older."""
        if self.anchor is Anchor.START:
            return start
        if self.anchor is Anchor.END:
            return end
        if self.anchor is Anchor.SINCE:
            wanted = end if at_time is None else at_time
        elif self.anchor is Anchor.LAST:
            wanted = end - self.value
        elif self.anchor is Anchor.ON:
            wanted = (start if committed is None else committed) + self.value
        else:
            wanted = self.value
        return min(max(wanted, start), end)


START = Position(Anchor.START)
END = Position(Anchor.END)


def parse_position(text: str, wall_ms: int) -> Position:
    """`wall_ms` is now, for positions that are so long ago."""
    word = text.strip()
    if word in ("start", "beginning", "earliest"):
        return START
    if word in ("end", "latest"):
        return END
    if word.startswith("@"):
        return since(_moment_ms(word[1:], wall_ms))
    if word.startswith("-") and is_digits(word[1:]):
        return Position(Anchor.LAST, int(word[1:]))
    if is_digits(word):
        return Position(Anchor.OFFSET, int(word))
    raise ValueError(f'"{text}" is not a position; write start, end, -10, 42, @15m or @2026-11-01')


def parse_target(text: str, wall_ms: int) -> Position:
    """The same of a group, which is somewhere already: +10 is ten on from there."""
    word = text.strip()
    if word.startswith("+") and is_digits(word[1:]):
        return Position(Anchor.ON, int(word[1:]))
    try:
        return parse_position(word, wall_ms)
    except ValueError as problem:
        raise ValueError(str(problem).replace("-10, 42", "-10, +10, 42")) from None


def since(wall_ms: int) -> Position:
    """Times before 1970 have other meanings on the wire."""
    return Position(Anchor.SINCE, min(max(wall_ms, 0), _LATEST_MS))


def _moment_ms(text: str, wall_ms: int) -> int:
    if is_digits(text) and len(text) >= _EPOCH_DIGITS:
        return int(text) * (1 if len(text) > _EPOCH_DIGITS + 1 else 1000)
    if (moment := rfc3339_ms(text)) is not None:
        return moment
    try:
        return wall_ms - parse_duration_ms(text)
    except ValueError:
        raise ValueError(f'"@{text}" is not a time; write @15m, @2026-11-01 or @2026-11-01T12:30') from None
