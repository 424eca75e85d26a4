"""Codec: the five bytes before a value that say which schema it has: a zero, and the schema's id (Confluent's wire format)."""

from __future__ import annotations

PREFIX_BYTES = 5


def schema_id(value: bytes | memoryview | None) -> int | None:
    """None: the value does not say."""
    if value is None or len(value) < PREFIX_BYTES or value[0] != 0:
        return None
    return int.from_bytes(value[1:PREFIX_BYTES], "big")


def framed(identifier: int, payload: bytes) -> bytes:
    return b"\0" + identifier.to_bytes(PREFIX_BYTES - 1, "big") + payload
