"""Codec: structs as rows of JSON, with each of their moments for people, too (decision 0029).

A struct is shown field by field; what is not a struct, or a list of them, is shown as it is: what a record holds is its writer's.
"""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

from headrace.core.moments import MOMENTS, rfc3339
from headrace.records.build import Record
from headrace.records.shown import shown_bytes, shown_headers

Row = dict[str, object]


class RecordFields(TypedDict):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: dict[str, Any]


def record_fields(topic: str, partition: int, record: Record) -> RecordFields:
    """For forms that are records with something besides: `ShownLetter(**record_fields(…), reason=…)`."""
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": shown_bytes(record.key),
        "value": shown_bytes(record.value),
        "headers": shown_headers(record.headers),
    }


def row(struct: msgspec.Struct) -> Row:
    """0 and None are never. What is unset is not there."""
    shown: Row = {}
    names = struct.__struct_encode_fields__
    for field, name in zip(struct.__struct_fields__, names, strict=True):
        value = getattr(struct, field)
        if value is msgspec.UNSET:
            continue
        if name in MOMENTS and (plain := name[:-3]) not in names:
            shown[plain] = rfc3339(value) if value else None
        shown[name] = _shown(value)
    return shown


def _shown(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return row(value)
    if isinstance(value, list):
        return [_shown(one) for one in value]
    return value
