"""Codec: where to start reading, as people write it.

start · end · -10 (the last ten) · 42 (offset 42) · @15m (that long ago) · @2026-11-01 · @2026-11-01T12:30 (UTC unless
it says otherwise) · @1793000000000 (milliseconds since 1970)
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from headrace.core.units import parse_duration_ms

_EPOCH_DIGITS = 10
"""`@` with this many digits or more is a point in time, not a duration."""


class Anchor(Enum):
    START = "start"
    END = "end"
    LAST = "last"
    OFFSET = "offset"
    SINCE = "since"


class Position(NamedTuple):
    anchor: Anchor
    value: int = 0
    """LAST: how many. OFFSET: which. SINCE: milliseconds since 1970."""


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
        return Position(Anchor.SINCE, _moment_ms(word[1:], wall_ms))
    if word.startswith("-") and word[1:].isdecimal():
        return Position(Anchor.LAST, int(word[1:]))
    if word.isdecimal():
        return Position(Anchor.OFFSET, int(word))
    raise ValueError(f'"{text}" is not a position; write start, end, -10, 42, @15m or @2026-11-01')


def since(moment: datetime) -> Position:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return Position(Anchor.SINCE, round(aware.timestamp() * 1000))


def _moment_ms(text: str, wall_ms: int) -> int:
    if text.isdecimal() and len(text) >= _EPOCH_DIGITS:
        return int(text) * (1 if len(text) > _EPOCH_DIGITS + 1 else 1000)
    try:
        return since(datetime.fromisoformat(text)).value
    except ValueError:
        pass
    try:
        return wall_ms - parse_duration_ms(text)
    except ValueError:
        raise ValueError(f'"@{text}" is not a time; write @15m, @2026-11-01 or @2026-11-01T12:30') from None
