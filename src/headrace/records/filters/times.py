"""Codec: RFC 3339 times to milliseconds since 1970, without a clock or a calendar library (pure packages have none)."""

from __future__ import annotations

import re

_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?\s*+([Zz]|[+-][0-9]{2}:[0-9]{2})?)?"
)
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def rfc3339_ms(text: str) -> int | None:
    """None when it is no time. Without a zone it is UTC; a date alone is its midnight."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    hour, minute, second = int(match[4] or 0), int(match[5] or 0), int(match[6] or 0)
    if not (
        1 <= month <= 12
        and 1 <= day <= _month_days(year, month)
        and hour < 24
        and minute < 60
        and second <= 60
    ):
        return None
    millis = int((match[7] or "0").ljust(3, "0")[:3])
    zone = match[8]
    offset_minutes = 0
    if zone and zone not in "Zz":
        offset_minutes = (int(zone[1:3]) * 60 + int(zone[4:6])) * (-1 if zone[0] == "-" else 1)
    seconds = (
        _days_since_1970(year, month, day) * 86_400 + hour * 3600 + (minute - offset_minutes) * 60 + second
    )
    return seconds * 1000 + millis


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _month_days(year: int, month: int) -> int:
    return 29 if month == 2 and _is_leap(year) else _DAYS[month - 1]


def _days_since_1970(year: int, month: int, day: int) -> int:
    before = year - 1
    whole_years = 365 * (year - 1970) + (before // 4 - before // 100 + before // 400) - 477
    return whole_years + sum(_month_days(year, number) for number in range(1, month)) + day - 1
