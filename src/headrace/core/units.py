"""Kernel: durations and sizes as people write them (`7d`, `1MiB`)."""

from __future__ import annotations

import re

_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZE = {
    "": 1, "b": 1, "k": 1000, "kb": 1000, "kib": 1 << 10, "m": 1000**2, "mb": 1000**2, "mib": 1 << 20,
    "g": 1000**3, "gb": 1000**3, "gib": 1 << 30, "t": 1000**4, "tb": 1000**4, "tib": 1 << 40,
}  # fmt: skip
_INTEGER = re.compile(r"-1|[0-9]{1,30}")
_PART = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*+([a-zA-Z]{1,9})\s*+")
_SIZE_TEXT = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*+([a-zA-Z]{0,9})")


def parse_duration_ms(text: str) -> int:
    """`1h30m` -> 5400000. A bare number is milliseconds; `-1` means for ever."""
    text = text.strip()
    if _INTEGER.fullmatch(text):
        return int(text)
    total = 0.0
    position = 0
    while not position or position < len(text):
        part = _PART.match(text, position)
        if part is None:
            raise ValueError(f'"{text}" is not a duration; write 500ms, 30s, 15m, 12h or 7d')
        unit = part.group(2).lower()
        if unit not in _DURATION_MS:
            raise ValueError(f'"{unit}" is not a unit of time; use ms, s, m, h, d or w')
        total += float(part.group(1)) * _DURATION_MS[unit]
        position = part.end()
    return round(total)


def is_digits(text: str) -> bool:
    """One or more of 0 to 9. To `str.isdigit` a superscript is a digit as well, and to `int` it is not."""
    return text.isascii() and text.isdecimal()


def parse_size(text: str) -> int:
    """`1MiB` -> 1048576. A bare number is bytes; `-1` means no limit."""
    text = text.strip()
    if _INTEGER.fullmatch(text):
        return int(text)
    match = _SIZE_TEXT.fullmatch(text)
    if match is None or match.group(2).lower() not in _SIZE:
        raise ValueError(f'"{text}" is not a size; write 512KiB, 1MiB, 10GB')
    return round(float(match.group(1)) * _SIZE[match.group(2).lower()])


def format_duration_ms(ms: int) -> str:
    if ms < 0:
        return "for ever"
    for unit in ("d", "h", "m", "s"):
        if ms and ms % _DURATION_MS[unit] == 0:
            return f"{ms // _DURATION_MS[unit]}{unit}"
    return f"{ms}ms"


def format_age_ms(ms: int) -> str:
    """As people say it: the two largest units, and no fractions."""
    left = max(0, ms)
    said: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, _DURATION_MS[unit])
        if count or (said and unit != "s"):
            said.append(f"{count}{unit}")
        if len(said) == 2:
            break
    return " ".join(part for part in said if not part.startswith("0")) or "0s"


def format_size(size: int) -> str:
    if size < 0:
        return "unlimited"
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
