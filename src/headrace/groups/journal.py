"""Codec: facts as Kafka's own `__consumer_offsets` records, so that tools which read that topic understand ours.

A key begins with an int16 that says what kind it is:

    0, 1  group, topic, partition -> OffsetCommitValue   (written as key 1, value 3; value 1 when it has its own expiry)
    2     group                   -> GroupMetadataValue  (written as value 3)

Unknown kinds and versions are skipped, never fatal: a newer broker may have written them.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from headrace.core.plan import JournalRecord
from headrace.groups.commands import Protocol
from headrace.groups.facts import GroupSnapshot
from headrace.groups.offset_table import CommittedOffset
from headrace.groups.state import Member

OFFSET_KEY = 1
GROUP_KEY = 2

MAX_STRING_BYTES = 32_767
"""What the journal's strings can hold; the protocol's newer versions can send more."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_OFFSET_V3 = Struct(">hqi")
_OFFSET_V1 = Struct(">hq")


class OffsetRecord(NamedTuple):
    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


class GroupRecord(NamedTuple):
    group_id: str
    value: GroupSnapshot | None


def fits(*texts: str | None) -> bool:
    """True when each of these, which a client chose, can be journaled."""
    return all(
        text is None or len(text) <= MAX_STRING_BYTES // 4 or len(text.encode()) <= MAX_STRING_BYTES
        for text in texts
    )


# --- writing -------------------------------------------------------------------------------------------------


def offset_record(group_id: str, topic: str, partition: int, value: CommittedOffset | None) -> JournalRecord:
    key = _INT16.pack(OFFSET_KEY) + _string(group_id) + _string(topic) + _INT32.pack(partition)
    return JournalRecord(key, None if value is None else _offset_value(value))


def _offset_value(value: CommittedOffset) -> bytes:
    metadata, committed = _string(value.metadata), _INT64.pack(value.commit_wall_ms)
    if value.expire_wall_ms >= 0:
        # Only version 1 has a place for it; it has none for the leader epoch, as in Kafka.
        return _OFFSET_V1.pack(1, value.offset) + metadata + committed + _INT64.pack(value.expire_wall_ms)
    return _OFFSET_V3.pack(3, value.offset, value.leader_epoch) + metadata + committed


def group_record(group_id: str, snapshot: GroupSnapshot | None) -> JournalRecord:
    key = _INT16.pack(GROUP_KEY) + _string(group_id)
    return JournalRecord(key, None if snapshot is None else _group_value(snapshot))


def _group_value(snapshot: GroupSnapshot) -> bytes:
    parts = [
        _INT16.pack(3),
        _string(snapshot.protocol_type),
        _INT32.pack(snapshot.generation),
        _nullable(snapshot.protocol),
        _nullable(snapshot.leader),
        _INT64.pack(snapshot.since_wall_ms),
        _INT32.pack(len(snapshot.members)),
    ]
    for member in snapshot.members:
        parts += (
            _string(member.member_id),
            _nullable(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _bytes(member.metadata(snapshot.protocol)),
            _bytes(member.assignment),
        )
    return b"".join(parts)


def _string(text: str) -> bytes:
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def _nullable(text: str | None) -> bytes:
    return _INT16.pack(-1) if text is None else _string(text)


def _bytes(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


# --- reading -------------------------------------------------------------------------------------------------


class _Reader:
    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def number(self, layout: Struct) -> int:
        (value,) = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return int(value)

    def raw(self, length: int) -> bytes:
        end = self.position + length
        if length < 0 or end > len(self.data):
            raise ValueError("a length points past the end of the record")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def nullable(self) -> str | None:
        length = self.number(_INT16)
        return None if length == -1 else self.raw(length).decode()

    def string(self) -> str:
        return self.nullable() or ""

    def bytes(self) -> bytes:
        return self.raw(max(self.number(_INT32), 0))


def decode(record: JournalRecord) -> OffsetRecord | GroupRecord | None:
    """None for a record of a kind or version this broker does not know, or one that is cut short."""
    try:
        return _decode(record)
    except (error, ValueError):
        return None


def _decode(record: JournalRecord) -> OffsetRecord | GroupRecord | None:
    key = _Reader(record.key)
    kind = key.number(_INT16)
    if kind in (0, OFFSET_KEY):
        group_id, topic, partition = key.string(), key.string(), key.number(_INT32)
        if record.value is None:
            return OffsetRecord(group_id, topic, partition, None)
        value = _decode_offset(_Reader(record.value))
        return None if value is None else OffsetRecord(group_id, topic, partition, value)
    if kind == GROUP_KEY:
        group_id = key.string()
        if record.value is None:
            return GroupRecord(group_id, None)
        snapshot = _decode_group(_Reader(record.value))
        return None if snapshot is None else GroupRecord(group_id, snapshot)
    return None


def _decode_offset(reader: _Reader) -> CommittedOffset | None:
    version = reader.number(_INT16)
    if not 0 <= version <= 3:
        return None
    offset = reader.number(_INT64)
    leader_epoch = reader.number(_INT32) if version >= 3 else -1
    metadata = reader.string()
    commit_wall_ms = reader.number(_INT64)
    expire_wall_ms = reader.number(_INT64) if version == 1 else -1
    return CommittedOffset(offset, leader_epoch, metadata, commit_wall_ms, expire_wall_ms)


def _decode_group(reader: _Reader) -> GroupSnapshot | None:
    version = reader.number(_INT16)
    if not 0 <= version <= 3:
        return None
    protocol_type = reader.string()
    generation = reader.number(_INT32)
    protocol, leader = reader.nullable(), reader.nullable()
    since_wall_ms = reader.number(_INT64) if version >= 2 else -1
    members = tuple(_decode_member(reader, version, protocol) for _ in range(reader.number(_INT32)))
    return GroupSnapshot(protocol_type, generation, protocol, leader, since_wall_ms, members)


def _decode_member(reader: _Reader, version: int, protocol: str | None) -> Member:
    member_id = reader.string()
    instance_id = reader.nullable() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.number(_INT32) if version >= 1 else -1
    session_timeout_ms = reader.number(_INT32)
    subscription, assignment = reader.bytes(), reader.bytes()
    return Member(
        member_id,
        instance_id,
        client_id,
        client_host,
        session_timeout_ms,
        # Version 0 had one timeout for both.
        rebalance_timeout_ms if rebalance_timeout_ms >= 0 else session_timeout_ms,
        # Only the elected protocol is journaled; the others come back when the member rejoins.
        (Protocol(protocol or "", subscription),),
        assignment,
    )
