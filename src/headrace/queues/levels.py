"""Kernel: the eighteen classic delay levels, which clients that come from brokers with fixed levels name."""

from __future__ import annotations

from headrace.core.units import parse_duration_ms

DELAY_LEVELS: tuple[str, ...] = (
    "1s", "5s", "10s", "30s", "1m", "2m", "3m", "4m", "5m", "6m", "7m", "8m", "9m", "10m", "20m", "30m", "1h", "2h",
)  # fmt: skip

_MS_BY_NAME = {name: parse_duration_ms(name) for name in DELAY_LEVELS}


def level_by_name(name: str) -> int | None:
    """`"10s"` -> 10000; None when it is not one of the eighteen."""
    return _MS_BY_NAME.get(name.strip().lower())
