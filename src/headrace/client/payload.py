"""Codec: what people publish, as bytes. Bytes stay, text is UTF-8, None is a tombstone, the rest becomes JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


def encode_payload(payload: object) -> bytes | None:
    if payload is None or isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    try:
        return msgspec.json.encode(payload)
    except TypeError as problem:
        raise TypeError(
            f"a payload is bytes, str or something that JSON knows, not {type(payload).__name__}: {problem}"
        ) from None


def encode_key(key: str | bytes | int | None) -> bytes | None:
    """A number is its decimal text, so that every client finds the same partition for it."""
    if key is None or isinstance(key, bytes):
        return key
    return str(key).encode()


def encode_headers(headers: Headers | None) -> list[tuple[str, bytes | None]] | None:
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]
