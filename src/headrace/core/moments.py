"""Codec: a moment as JSON shows it: RFC 3339 under its plain name, and milliseconds since 1970 beside it under the name with `_ms` (F54)."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Any

MOMENTS = frozenset(
    {
        "asked_ms",
        "at_ms",
        "checked_ms",
        "confirmed_ms",
        "created_ms",
        "due_ms",
        "ended_ms",
        "expires_ms",
        "first_ms",
        "last_ms",
        "last_used_ms",
        "last_write_ms",
        "last_commit_ms",
        "next_ms",
        "newest_ms",
        "not_after_ms",
        "not_before_ms",
        "oldest_unread_ms",
        "received_ms",
        "sent_ms",
        "since_ms",
        "started_ms",
        "timestamp_ms",
        "updated_ms",
    }
)
"""What else ends in `_ms` is a duration."""


DAY_MS = 86_400_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""Of the years 1 to 9999, counted from 1970."""


def rfc3339(wall_ms: int) -> str | None:
    """In UTC and to the millisecond. None for what no calendar has: a producer may write any number."""
    day, ms = divmod(wall_ms, DAY_MS)
    if not _FIRST_DAY <= day <= _LAST_DAY:
        return None
    second, ms = divmod(ms, 1000)
    minute, second = divmod(second, 60)
    return f"{_date(day)}T{minute // 60:02}:{minute % 60:02}:{second:02}.{ms:03}Z"


@lru_cache(maxsize=64)
def _date(day: int) -> str:
    """Pure packages have no calendar. Years begin in March here, so that a leap day is the last of one."""
    era, in_era = divmod(day + 719_468, 146_097)  # 400 years
    year = (in_era - in_era // 1_460 + in_era // 36_524 - in_era // 146_096) // 365
    in_year = in_era - (365 * year + year // 4 - year // 100)
    month = (5 * in_year + 2) // 153
    after_new_year = month >= 10
    return f"{era * 400 + year + after_new_year:04}-{month - 9 if after_new_year else month + 3:02}-{in_year - (153 * month + 2) // 5 + 1:02}"


def moment_name(name: str, names: Container[str]) -> str:
    """Under which a field of a row with these names is shown for people; empty: it is no moment, or the row says it itself."""
    plain = name[:-3]
    return plain if name in MOMENTS and plain not in names else ""


def timed(row: Mapping[str, object]) -> dict[str, object]:
    """The same row, with each of its own moments for people, too. 0 and None are never."""
    shown: dict[str, object] = {}
    for name, value in row.items():
        if plain := moment_name(name, row):
            shown[plain] = rfc3339(value) if isinstance(value, int) and value else None
        shown[name] = value
    return shown


def show_moments(schema: dict[str, Any]) -> bool:
    """The JSON schema of such rows: what `timed` adds. False: nothing."""
    properties = schema.get("properties", {})
    shown: dict[str, Any] = {}
    for name, kind in properties.items():
        if plain := moment_name(name, properties):
            shown[plain] = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}
            if name in schema.get("required", ()):
                schema["required"].append(plain)
        shown[name] = kind
    if properties:
        schema["properties"] = shown
    return len(shown) > len(properties)
