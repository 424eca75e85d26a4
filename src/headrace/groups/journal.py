"""Codec: facts as Kafka's own `__consumer_offsets` records, so that tools which read that topic understand ours.

A key begins with an int16 that says what kind it is:

    0, 1  group, topic, partition -> OffsetCommitValue   (written as key 1, value 3; value 1 when it has its own expiry)
    2     group                   -> GroupMetadataValue  (written as value 3)

Behind an OffsetCommitValue lie the 16 bytes of the id of the topic that it is for. Kafka's readers, ours of before
included, stop where their version ends.

Unknown kinds and versions are skipped, never fatal: a newer broker may have written them.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from headrace.core.plan import JournalRecord
from headrace.groups.commands import Protocol
from headrace.groups.facts import GroupSnapshot
from headrace.groups.fields import INT16, INT32, INT64, FieldReader, MalformedFields, nullable, sized, string
from headrace.groups.members import Member
from headrace.groups.offset_table import CommittedOffset

OFFSET_KEY = 1
GROUP_KEY = 2

_OFFSET_V3 = Struct(">hqi")
_OFFSET_V1 = Struct(">hq")
_TOPIC_ID_BYTES = 16


class OffsetRecord(NamedTuple):
    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


class GroupRecord(NamedTuple):
    group_id: str
    value: GroupSnapshot | None


# --- writing -------------------------------------------------------------------------------------------------


def offset_record(group_id: str, topic: str, partition: int, value: CommittedOffset | None) -> JournalRecord:
    key = INT16.pack(OFFSET_KEY) + string(group_id) + string(topic) + INT32.pack(partition)
    return JournalRecord(key, None if value is None else _offset_value(value))


def _offset_value(value: CommittedOffset) -> bytes:
    metadata, committed = string(value.metadata), INT64.pack(value.commit_wall_ms)
    if value.expire_wall_ms >= 0:
        # Only version 1 has a place for it; it has none for the leader epoch, as in Kafka.
        head = _OFFSET_V1.pack(1, value.offset)
        return head + metadata + committed + INT64.pack(value.expire_wall_ms) + value.topic_id
    return _OFFSET_V3.pack(3, value.offset, value.leader_epoch) + metadata + committed + value.topic_id


def group_record(group_id: str, snapshot: GroupSnapshot | None) -> JournalRecord:
    key = INT16.pack(GROUP_KEY) + string(group_id)
    return JournalRecord(key, None if snapshot is None else _group_value(snapshot))


def _group_value(snapshot: GroupSnapshot) -> bytes:
    parts = [
        INT16.pack(3),
        string(snapshot.protocol_type),
        INT32.pack(snapshot.generation),
        nullable(snapshot.protocol),
        nullable(snapshot.leader),
        INT64.pack(snapshot.since_wall_ms),
        INT32.pack(len(snapshot.members)),
    ]
    for member in snapshot.members:
        parts += (
            string(member.member_id),
            nullable(member.instance_id),
            string(member.client_id),
            string(member.client_host),
            INT32.pack(member.rebalance_timeout_ms),
            INT32.pack(member.session_timeout_ms),
            sized(member.metadata(snapshot.protocol)),
            sized(member.assignment),
        )
    return b"".join(parts)


# --- reading -------------------------------------------------------------------------------------------------


def decode(record: JournalRecord) -> OffsetRecord | GroupRecord | None:
    """None for a record of a kind or version this broker does not know, or one that is cut short."""
    try:
        return _decode(record)
    except MalformedFields:
        return None


def _decode(record: JournalRecord) -> OffsetRecord | GroupRecord | None:
    key = FieldReader(record.key)
    kind = key.number(INT16)
    if kind in (0, OFFSET_KEY):
        group_id, topic, partition = key.string(), key.string(), key.number(INT32)
        if record.value is None:
            return OffsetRecord(group_id, topic, partition, None)
        value = _decode_offset(FieldReader(record.value))
        return None if value is None else OffsetRecord(group_id, topic, partition, value)
    if kind == GROUP_KEY:
        group_id = key.string()
        if record.value is None:
            return GroupRecord(group_id, None)
        snapshot = _decode_group(FieldReader(record.value))
        return None if snapshot is None else GroupRecord(group_id, snapshot)
    return None


def _decode_offset(reader: FieldReader) -> CommittedOffset | None:
    version = reader.number(INT16)
    if not 0 <= version <= 3:
        return None
    offset = reader.number(INT64)
    leader_epoch = reader.number(INT32) if version >= 3 else -1
    metadata = reader.string()
    commit_wall_ms = reader.number(INT64)
    expire_wall_ms = reader.number(INT64) if version == 1 else -1
    topic_id = reader.raw(_TOPIC_ID_BYTES) if reader.left() == _TOPIC_ID_BYTES else b""
    return CommittedOffset(offset, leader_epoch, metadata, commit_wall_ms, expire_wall_ms, topic_id=topic_id)


def _decode_group(reader: FieldReader) -> GroupSnapshot | None:
    version = reader.number(INT16)
    if not 0 <= version <= 3:
        return None
    protocol_type = reader.string()
    generation = reader.number(INT32)
    protocol, leader = reader.nullable(), reader.nullable()
    since_wall_ms = reader.number(INT64) if version >= 2 else -1
    members = tuple(_decode_member(reader, version, protocol) for _ in range(reader.count()))
    return GroupSnapshot(protocol_type, generation, protocol, leader, since_wall_ms, members)


def _decode_member(reader: FieldReader, version: int, protocol: str | None) -> Member:
    member_id = reader.string()
    instance_id = reader.nullable() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.number(INT32) if version >= 1 else -1
    session_timeout_ms = reader.number(INT32)
    subscription, assignment = reader.sized(), reader.sized()
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
