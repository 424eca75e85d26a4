"""Codec: the MD5s that SDKs verify. Not for security: they say that a message arrived as it was sent."""

from __future__ import annotations

import hashlib
import struct
from base64 import b64decode
from binascii import Error
from collections.abc import Mapping
from typing import Any

Attribute = Mapping[str, Any]
"""Of a message, as its sender wrote it: whoever reads it has had it checked."""
_length = struct.Struct(">I").pack


def md5_of(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Mapping[str, Attribute]) -> str:
    """Names sorted; for each the name, the type, one byte for text or bytes, and the value, with their lengths."""
    parts: list[bytes] = []
    for name in sorted(attributes):
        attribute = attributes[name]
        kind = attribute["DataType"]
        parts += [_sized(name.encode()), _sized(kind.encode())]
        if kind.split(".")[0] == "Binary":
            parts += [b"\x02", _sized(binary_value(attribute))]
        else:
            parts += [b"\x01", _sized(attribute["StringValue"].encode())]
    return md5_of(b"".join(parts))


def binary_value(attribute: Attribute) -> bytes:
    value = attribute.get("BinaryValue", b"")
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        return b""
    try:
        return b64decode(value, validate=True)
    except (Error, ValueError):
        return b""


def _sized(data: bytes) -> bytes:
    return _length(len(data)) + data
