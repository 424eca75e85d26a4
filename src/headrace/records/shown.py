"""Codec: a record as JSON shows it, at every door: text as it is, other bytes as {"base64": "…"}, headers as a map (F54)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import TypedDict

from headrace.core.moments import rfc3339
from headrace.records.build import Record


class ShownFields(TypedDict):
    """Of forms that are records, perhaps with something besides: `ShownLetter(**shown_record(…), reason=…)`."""

    topic: str
    partition: int
    offset: int
    timestamp: str | None
    timestamp_ms: int
    key: object
    value: object
    headers: dict[str, object]


def shown_bytes(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def shown_headers(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, object]:
    """A name that comes more than once has the list of its values."""
    shown: dict[str, object] = {}
    repeated: dict[str, list[object]] = {}
    for name, value in headers:
        if name not in shown:
            shown[name] = shown_bytes(value)
        elif name in repeated:
            repeated[name].append(shown_bytes(value))
        else:
            shown[name] = repeated[name] = [shown[name], shown_bytes(value)]
    return shown


def shown_record(topic: str, partition: int, record: Record) -> ShownFields:
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
