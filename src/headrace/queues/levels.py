"""Kernel: the eighteen classic delay levels, by number and by name.

Clients that come from brokers with fixed levels say "level 3" or "10s"; both become milliseconds here and nowhere else.
"""

from __future__ import annotations

from headrace.core.units import parse_duration_ms

DELAY_LEVELS: tuple[str, ...] = (
    "1s", "5s", "10s", "30s", "1m", "2m", "3m", "4m", "5m", "6m", "7m", "8m", "9m", "10m", "20m", "30m", "1h", "2h",
)  # fmt: skip

_MS_BY_NAME = {name: parse_duration_ms(name) for name in DELAY_LEVELS}


def level_ms(level: int) -> int:
    """Levels count from 1; 0 is no delay and anything above the last is the last, as the classic brokers do it."""
    if level <= 0:
        return 0
    return _MS_BY_NAME[DELAY_LEVELS[min(level, len(DELAY_LEVELS)) - 1]]


def level_by_name(name: str) -> int | None:
    """`"10s"` -> 10000; None when it is not one of the eighteen."""
    return _MS_BY_NAME.get(name.strip().lower())
