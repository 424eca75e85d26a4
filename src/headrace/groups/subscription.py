"""Codec: the little we read of the consumer protocol that clients embed in JoinGroup: which topics, and who owns what.

Only for groups whose protocol type is "consumer"; everybody else's metadata is opaque. The bytes come from
clients, so every length is checked against what is there, and nonsense yields None, never an exception.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

_INT16 = Struct(">h")
_INT32 = Struct(">i")


class MemberSubscription(NamedTuple):
    version: int
    topics: tuple[str, ...]
    owned: tuple[tuple[str, tuple[int, ...]], ...] = ()
    generation: int = -1
    rack: str | None = None


class _Malformed(Exception):
    pass


class _Cursor:
    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, layout: Struct) -> int:
        end = self.position + layout.size
        if end > len(self.data):
            raise _Malformed
        (value,) = layout.unpack_from(self.data, self.position)
        self.position = end
        return int(value)

    def skip(self, length: int) -> bytes:
        end = self.position + length
        if length < 0 or end > len(self.data):
            raise _Malformed
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def string(self) -> str | None:
        length = self.take(_INT16)
        return None if length == -1 else self.skip(length).decode()

    def count(self, least_bytes_each: int) -> int:
        count = self.take(_INT32)
        if count < 0 or count * least_bytes_each > len(self.data) - self.position:
            raise _Malformed
        return count

    def topics_and_partitions(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        found: list[tuple[str, tuple[int, ...]]] = []
        for _ in range(self.count(6)):
            topic = self.string() or ""
            found.append((topic, tuple(self.take(_INT32) for _ in range(self.count(4)))))
        return tuple(found)


def parse_subscription(metadata: bytes) -> MemberSubscription | None:
    """Version 0 has topics and user data; 1 adds owned partitions, 2 the generation, 3 the rack (KIP-429, 792, 881)."""
    cursor = _Cursor(metadata)
    try:
        version = cursor.take(_INT16)
        if version < 0:
            return None
        topics = tuple(cursor.string() or "" for _ in range(cursor.count(2)))
        cursor.skip(max(cursor.take(_INT32), 0))
        owned = cursor.topics_and_partitions() if version >= 1 else ()
        generation = cursor.take(_INT32) if version >= 2 else -1
        rack = cursor.string() if version >= 3 else None
    except (_Malformed, UnicodeDecodeError):
        return None
    return MemberSubscription(version, topics, owned, generation, rack)


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """Only the topics, which every version has in the same place, whatever a client wrote after them."""
    cursor = _Cursor(metadata)
    try:
        if cursor.take(_INT16) < 0:
            return None
        return tuple(cursor.string() or "" for _ in range(cursor.count(2)))
    except (_Malformed, UnicodeDecodeError):
        return None


def encode_assignment(version: int, partitions: tuple[tuple[str, tuple[int, ...]], ...]) -> bytes:
    return b"".join((_INT16.pack(version), _topics_and_partitions(partitions), _INT32.pack(-1)))


def parse_assignment(assignment: bytes) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    if not assignment:
        return ()
    cursor = _Cursor(assignment)
    try:
        cursor.take(_INT16)
        return cursor.topics_and_partitions()
    except (_Malformed, UnicodeDecodeError):
        return None


def _string(text: str) -> bytes:
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def _topics_and_partitions(partitions: tuple[tuple[str, tuple[int, ...]], ...]) -> bytes:
    parts = [_INT32.pack(len(partitions))]
    for topic, indexes in partitions:
        parts.append(_string(topic))
        parts.append(_INT32.pack(len(indexes)))
        parts.extend(_INT32.pack(index) for index in indexes)
    return b"".join(parts)
