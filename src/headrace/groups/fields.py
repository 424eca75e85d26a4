"""Codec: the field types of Kafka's journal records, fixed (`string`) and flexible (`compact`, KIP-482).

Journals are ours, but they are replicated, truncated and sometimes restored by people: a reader checks every length
against what is there and raises Malformed, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TypeVar

INT8 = Struct(">b")
INT16 = Struct(">h")
UINT16 = Struct(">H")
INT32 = Struct(">i")
INT64 = Struct(">q")

MAX_STRING_BYTES = 32_767
"""What the journal's strings can hold; the protocol's newer versions can send more."""

T = TypeVar("T")


class MalformedFields(ValueError):
    pass


def fits(*texts: str | None) -> bool:
    """True when each of these, which a client chose, can be journaled."""
    return all(
        text is None or len(text) <= MAX_STRING_BYTES // 4 or len(text.encode()) <= MAX_STRING_BYTES
        for text in texts
    )


# --- writing -------------------------------------------------------------------------------------------------


def string(text: str) -> bytes:
    raw = text.encode()
    return INT16.pack(len(raw)) + raw


def nullable(text: str | None) -> bytes:
    return INT16.pack(-1) if text is None else string(text)


def sized(data: bytes) -> bytes:
    return INT32.pack(len(data)) + data


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact(data: bytes | str | None) -> bytes:
    if data is None:
        return b"\x00"
    raw = data.encode() if isinstance(data, str) else data
    return uvarint(len(raw) + 1) + raw


def compact_array(items: list[bytes]) -> bytes:
    return uvarint(len(items) + 1) + b"".join(items)


def tagged(fields: dict[int, bytes]) -> bytes:
    parts = [uvarint(len(fields))]
    for tag, data in sorted(fields.items()):
        parts += (uvarint(tag), uvarint(len(data)), data)
    return b"".join(parts)


NO_TAGS = tagged({})


# --- reading -------------------------------------------------------------------------------------------------


class FieldReader:
    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, layout: Struct) -> int:
        (value,) = layout.unpack(self.raw(layout.size))
        return int(value)

    def raw(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise MalformedFields("a length points past the end of the record")
        piece = self._data[self._position : end]
        self._position = end
        return piece

    def left(self) -> int:
        return len(self._data) - self._position

    def nullable(self) -> str | None:
        length = self.number(INT16)
        return None if length == -1 else _text(self.raw(length))

    def string(self) -> str:
        return self.nullable() or ""

    def sized(self) -> bytes:
        return self.raw(max(self.number(INT32), 0))

    def count(self) -> int:
        return self._plausible(self.number(INT32))

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            (byte,) = self.raw(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedFields("a variable-length number does not end")

    def compact_bytes(self) -> bytes | None:
        length = self.uvarint() - 1
        return None if length < 0 else self.raw(length)

    def compact_nullable(self) -> str | None:
        raw = self.compact_bytes()
        return None if raw is None else _text(raw)

    def compact_string(self) -> str:
        return self.compact_nullable() or ""

    def compact_array(self, item: Callable[[FieldReader], T]) -> list[T]:
        count = self._plausible(max(self.uvarint() - 1, 0))
        return [item(self) for _ in range(count)]

    def tags(self) -> dict[int, bytes]:
        count = self._plausible(self.uvarint())
        return {self.uvarint(): self.raw(self.uvarint()) for _ in range(count)}

    def _plausible(self, count: int) -> int:
        if not 0 <= count <= len(self._data) - self._position:
            raise MalformedFields("more items than bytes")
        return count


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as problem:
        raise MalformedFields("a string is not UTF-8") from problem
