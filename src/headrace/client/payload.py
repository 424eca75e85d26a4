"""Codec: what people publish, as bytes, and back. Bytes stay, text is UTF-8, None is a tombstone, the rest becomes JSON: also
dataclasses, msgspec structs and pydantic models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from headrace.core.errors import ErrorKind, HeadraceError

T = TypeVar("T")
Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


def encode_payload(payload: object) -> bytes | None:
    if payload is None or isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    if hasattr(payload, "model_dump_json"):  # pydantic's own word for it
        return str(payload.model_dump_json()).encode()
    try:
        return msgspec.json.encode(payload)
    except TypeError as problem:
        raise TypeError(
            f"a payload is bytes, str or something that JSON knows, not {type(payload).__name__}: {problem}"
        ) from None


def decode_payload(value: bytes | None, kind: type[T]) -> T:
    """JSON as this type. Raises HeadraceError: it is something else."""
    raw = value or b"null"
    try:
        validate: Any = getattr(kind, "model_validate_json", None)  # pydantic's
        if validate is not None:
            return cast(T, validate(raw))
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, ValueError) as problem:  # both pydantic's and msgspec's are ValueErrors
        name = getattr(kind, "__name__", str(kind))
        raise HeadraceError(ErrorKind.INVALID_RECORD, f"the value is not a {name}: {problem}") from None


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
