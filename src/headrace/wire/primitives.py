"""Codec: Kafka's primitive types, read and written one by one with every length checked.

Invariants: ProtocolError is the only exception a decoder lets out; a claimed length or count is compared with the
bytes that are really there before anything is allocated for it (X10); the number of tagged fields is bounded, and so is the
number of entries of a message from a client, nested ones included, before they are decoded (A3).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Any, TypeVar

from headrace.core.limits import MAX_TAGGED_FIELDS
from headrace.core.ports import Buffer

T = TypeVar("T")

MALFORMED = (StructError, IndexError, UnicodeError, OverflowError)
"""What Python raises when hostile bytes make a decoder read past the end or decode what is not UTF-8."""

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
UNLIMITED = 1 << 31
"""Entries of a message from somebody we asked: what it may hold is bounded by its bytes alone."""
_ONE_BYTE = [bytes((value,)) for value in range(128)]


class ProtocolError(ValueError):
    """These bytes are not the message they claim to be, or this value can't be said in this version."""


class TooManyEntries(ProtocolError):
    """Well-formed as far as it was read, but with more entries than its reader allows (A3)."""

    def __init__(self) -> None:
        super().__init__("too many entries")


def fail(reason: str) -> Any:
    raise ProtocolError(reason)


def too_many() -> Any:
    raise TooManyEntries


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position after it."""
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise ProtocolError("varint is longer than 32 bits")
            return value, pos
        shift += 7
        if shift > 28:
            raise ProtocolError("varint is longer than 32 bits")


def uvarint(value: int) -> bytes:
    if value < 128:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_tag_count(buf: Buffer, pos: int) -> tuple[int, int]:
    count, pos = read_uvarint(buf, pos)
    # A tagged field takes two bytes at least.
    if count > MAX_TAGGED_FIELDS or 2 * count > len(buf) - pos:
        raise ProtocolError(f"{count} tagged fields are too many")
    return count, pos


def skip_tags(buf: Buffer, pos: int) -> int:
    """The position after a section of tagged fields none of which we know."""
    return skip_counted_tags(buf, pos, MAX_TAGGED_FIELDS)[0]


def skip_counted_tags(buf: Buffer, pos: int, left: int) -> tuple[int, int]:
    """As `skip_tags`, for a message that may have `left` more entries and tags; also how many are left then."""
    count, pos = read_tag_count(buf, pos)
    left -= count
    if left < 0:
        too_many()
    end = len(buf)
    for _ in range(count):
        _tag, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > end:
            raise ProtocolError("a tagged field is longer than the message")
    return pos, left


class Reader:
    """Reads primitives in order. A read that does not fit raises ProtocolError and leaves nothing allocated.

    `left`: how many more array elements and tagged fields the message may have (A3)."""

    __slots__ = ("buf", "end", "flexible", "left", "pos")

    def __init__(self, buf: Buffer, pos: int = 0, *, flexible: bool = True, left: int = UNLIMITED) -> None:
        self.buf = memoryview(buf)
        self.pos = pos
        self.end = len(self.buf)
        self.flexible = flexible
        self.left = left

    def _fixed(self, shape: Struct) -> int:
        pos = self.pos
        self.pos = pos + shape.size
        if self.pos > self.end:
            raise ProtocolError("the message ends inside a number")
        value: int = shape.unpack_from(self.buf, pos)[0]
        return value

    def int8(self) -> int:
        return self._fixed(_INT8)

    def int16(self) -> int:
        return self._fixed(_INT16)

    def int32(self) -> int:
        return self._fixed(_INT32)

    def int64(self) -> int:
        return self._fixed(_INT64)

    def uvarint(self) -> int:
        try:
            value, self.pos = read_uvarint(self.buf, self.pos)
        except IndexError:
            raise ProtocolError("the message ends inside a varint") from None
        return value

    def slice(self, size: int) -> memoryview:
        """The next `size` bytes, not copied."""
        pos = self.pos
        if size < 0 or size > self.end - pos:
            raise ProtocolError(f"{size} bytes are claimed, {self.end - pos} are there")
        self.pos = pos + size
        return self.buf[pos : pos + size]

    def uuid(self) -> bytes:
        return bytes(self.slice(16))

    def nullable_string(self) -> str | None:
        size = self.uvarint() - 1 if self.flexible else self.int16()
        if size == -1:
            return None
        try:
            return str(self.slice(size), "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("a string is not UTF-8") from None

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise ProtocolError("a string is null")
        return text

    def nullable_bytes(self) -> memoryview | None:
        size = self.uvarint() - 1 if self.flexible else self.int32()
        return None if size == -1 else self.slice(size)

    def count(self, smallest: int) -> int:
        """An array's length, -1 for null; `smallest` is what one element takes at least."""
        count = self.uvarint() - 1 if self.flexible else self.int32()
        if count < -1 or count * smallest > self.end - self.pos:
            raise ProtocolError(f"{count} elements are claimed, {self.end - self.pos} bytes are there")
        self.left -= max(count, 0)
        if self.left < 0:
            too_many()
        return count

    def array(self, smallest: int, element: Callable[[Reader], T]) -> list[T]:
        count = self.count(smallest)
        if count < 0:
            raise ProtocolError("an array is null")
        return [element(self) for _ in range(count)]

    def tags(self, known: dict[int, Callable[[Reader], None]] | None = None) -> None:
        """A section of tagged fields: the `known` ones are given to their reader, the others are skipped."""
        if not self.flexible:
            return
        try:
            if not known:
                self.pos, self.left = skip_counted_tags(self.buf, self.pos, self.left)
                return
            count, self.pos = read_tag_count(self.buf, self.pos)
        except IndexError:
            raise ProtocolError("the message ends inside its tagged fields") from None
        self.left -= count
        if self.left < 0:
            too_many()
        for _ in range(count):
            tag = self.uvarint()
            body = self.slice(self.uvarint())
            if tag in known:
                inner = Reader(body, left=self.left)
                known[tag](inner)
                inner.finish()
                self.left = inner.left

    def finish(self) -> None:
        if self.pos != self.end:
            raise ProtocolError(f"{self.end - self.pos} bytes are left over")


class Writer:
    """Collects buffers in order; `record_data` is kept as it is, everything else is small."""

    __slots__ = ("flexible", "out")

    def __init__(self, *, flexible: bool = True) -> None:
        self.out: list[Buffer] = []
        self.flexible = flexible

    def raw(self, data: Buffer) -> None:
        self.out.append(data)

    def int8(self, value: int) -> None:
        self.out.append(_INT8.pack(value))

    def int16(self, value: int) -> None:
        self.out.append(_INT16.pack(value))

    def int32(self, value: int) -> None:
        self.out.append(_INT32.pack(value))

    def int64(self, value: int) -> None:
        self.out.append(_INT64.pack(value))

    def uvarint(self, value: int) -> None:
        self.out.append(uvarint(value))

    def string(self, text: str | None) -> None:
        data = b"" if text is None else text.encode()
        size = -1 if text is None else len(data)
        self.out.append(uvarint(size + 1) if self.flexible else _INT16.pack(size))
        self.out.append(data)

    def record_data(self, data: Buffer | None) -> None:
        self.count(-1 if data is None else len(data))
        if data is not None:
            self.out.append(data)

    def count(self, count: int) -> None:
        self.out.append(uvarint(count + 1) if self.flexible else _INT32.pack(count))

    def tags(self, fields: list[tuple[int, bytes]] | None = None) -> None:
        """Tagged fields in ascending order of their tag."""
        if not self.flexible:
            return
        self.uvarint(len(fields or ()))
        for tag, data in fields or ():
            self.out += (uvarint(tag), uvarint(len(data)), data)

    def join(self) -> bytes:
        return b"".join(self.out)
