"""Codec: a record as JSON shows it, at every door: text as it is, other bytes as {"base64": "…"}, headers as a map (F54)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from headrace.core.moments import rfc3339
from headrace.records.build import Record


def shown_bytes(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def shown_headers(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, Any]:
    """A name that comes more than once has the list of its values."""
    shown: dict[str, Any] = {}
    repeated: set[str] = set()
    for name, value in headers:
        if name not in shown:
            shown[name] = shown_bytes(value)
        elif name in repeated:
            shown[name].append(shown_bytes(value))
        else:
            repeated.add(name)
            shown[name] = [shown[name], shown_bytes(value)]
    return shown


def shown_record(topic: str, partition: int, record: Record) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": rfc3339(record.timestamp),
        "timestamp_ms": record.timestamp,
        "key": shown_bytes(record.key),
        "value": shown_bytes(record.value),
        "headers": shown_headers(record.headers),
    }
