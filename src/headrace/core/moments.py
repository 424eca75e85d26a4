"""Codec: a moment as JSON shows it: RFC 3339 under its plain name, and milliseconds since 1970 beside it under the name with `_ms` (F54)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

MOMENTS = frozenset(
    {
        "at_ms",
        "checked_ms",
        "confirmed_ms",
        "created_ms",
        "due_ms",
        "expires_ms",
        "first_ms",
        "last_ms",
        "last_write_ms",
        "last_commit_ms",
        "next_ms",
        "not_after_ms",
        "not_before_ms",
        "oldest_unread_ms",
        "received_ms",
        "since_ms",
        "started_ms",
        "timestamp_ms",
        "updated_ms",
    }
)
"""What else ends in `_ms` is a duration."""


def rfc3339(wall_ms: int) -> str | None:
    """In UTC and to the millisecond. None for what no calendar has: a producer may write any number."""
    try:
        moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def timed(row: dict[str, Any]) -> dict[str, Any]:
    """The same row, with each of its own moments for people, too. 0 and None are never."""
    shown: dict[str, Any] = {}
    for name, value in row.items():
        if name in MOMENTS and (plain := name[:-3]) not in row:
            shown[plain] = rfc3339(value) if value else None
        shown[name] = value
    return shown


def show_moments(schema: dict[str, Any]) -> None:
    """The JSON schema of such rows: what `timed` adds."""
    properties = schema.get("properties", {})
    shown: dict[str, Any] = {}
    for name, kind in properties.items():
        if name in MOMENTS and (plain := name[:-3]) not in properties:
            shown[plain] = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}
            if name in schema.get("required", ()):
                schema["required"].append(plain)
        shown[name] = kind
    if properties:
        schema["properties"] = shown
