"""Codec: consumer groups as Kafka's ConsumerGroup* records (all flexible, value version 0).

    3  group          epoch (tag 0: what the topics looked like; tag 10000: empty since, which is ours)
    5  group, member  subscription
    6  group          epoch of the target assignment
    7  group, member  target assignment
    8  group, member  current assignment

Key 4, the topics' metadata, is not written (nor by Kafka since 4.1), and skipped when read. Matches of regular
expressions (16) are found again from the topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headrace.core.plan import JournalRecord
from headrace.groups.assigned import MemberState
from headrace.groups.commands import Protocol
from headrace.groups.consumer import facts
from headrace.groups.consumer.members import Assignment, ClassicMetadata, ConsumerSubscription, as_lists
from headrace.groups.fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    NO_TAGS,
    FieldReader,
    MalformedFields,
    compact,
    compact_array,
    string,
    tagged,
)

GROUP_KEY = 3
MEMBER_KEY = 5
TARGET_EPOCH_KEY = 6
TARGET_KEY = 7
CURRENT_KEY = 8

_HASH_TAG = 0
_EMPTY_SINCE_TAG = 10_000
_CLASSIC_TAG = 0
_READER_TAG = 10_001
"""Of ours: Kafka asks about rights where it looks for topics, and keeps no name."""


# --- writing -------------------------------------------------------------------------------------------------


def encode(fact: Any) -> Sequence[JournalRecord]:
    return tuple(_ENCODERS[type(fact)](fact))


def record(kind: int, names: Iterable[str], value: bytes | None) -> JournalRecord:
    key = INT16.pack(kind) + b"".join(string(name) for name in names)
    return JournalRecord(key, None if value is None else INT16.pack(0) + value)


def _encode_epoch(fact: facts.GroupEpochSet) -> Iterable[JournalRecord]:
    tags = {_HASH_TAG: INT64.pack(fact.fingerprint)}
    if fact.empty_since_wall_ms >= 0:
        tags[_EMPTY_SINCE_TAG] = INT64.pack(fact.empty_since_wall_ms)
    yield record(GROUP_KEY, (fact.group_id,), INT32.pack(fact.epoch) + tagged(tags))


def _encode_subscribed(fact: facts.MemberSubscribed) -> Iterable[JournalRecord]:
    given = fact.subscription
    value = b"".join(
        (
            compact(given.instance_id),
            compact(given.rack_id),
            compact(given.client_id),
            compact(given.client_host),
            compact_array([compact(topic) for topic in given.topics]),
            compact(given.pattern),
            INT32.pack(given.rebalance_timeout_ms),
            compact(given.assignor),
            _tags(given),
        )
    )
    yield record(MEMBER_KEY, (fact.group_id, fact.member_id), value)


def _tags(given: ConsumerSubscription) -> bytes:
    tags = {} if given.classic is None else {_CLASSIC_TAG: _classic(given.classic)}
    if given.reader:
        tags[_READER_TAG] = compact(given.reader)
    return tagged(tags) if tags else NO_TAGS


def _classic(classic: ClassicMetadata) -> bytes:
    protocols = [compact(name) + compact(metadata) + NO_TAGS for name, metadata in classic.protocols]
    # A nullable struct begins with a byte that says that it is there.
    return b"\x01" + INT32.pack(classic.session_timeout_ms) + compact_array(protocols) + NO_TAGS


def assignment(parts: Assignment) -> bytes:
    return compact_array(
        [
            topic_id + compact_array([INT32.pack(p) for p in indexes]) + NO_TAGS
            for topic_id, indexes in as_lists(parts)
        ]
    )


def _encode_targets(fact: facts.TargetsSet) -> Iterable[JournalRecord]:
    for member_id, parts in fact.targets:
        yield record(TARGET_KEY, (fact.group_id, member_id), assignment(parts) + NO_TAGS)
    yield record(TARGET_EPOCH_KEY, (fact.group_id,), INT32.pack(fact.epoch) + NO_TAGS)


def _encode_current(fact: facts.CurrentSet) -> Iterable[JournalRecord]:
    value = b"".join(
        (
            INT32.pack(fact.epoch),
            INT32.pack(fact.previous_epoch),
            INT8.pack(fact.state),
            assignment(fact.assigned),
            assignment(fact.revoking),
            NO_TAGS,
        )
    )
    yield record(CURRENT_KEY, (fact.group_id, fact.member_id), value)


def _encode_left(fact: facts.MemberLeft) -> Iterable[JournalRecord]:
    for kind in (CURRENT_KEY, TARGET_KEY, MEMBER_KEY):
        yield record(kind, (fact.group_id, fact.member_id), None)


def _encode_deleted(fact: facts.ConsumerGroupDeleted) -> Iterable[JournalRecord]:
    for kind in (TARGET_EPOCH_KEY, GROUP_KEY):
        yield record(kind, (fact.group_id,), None)


_ENCODERS: dict[type, Callable[[Any], Iterable[JournalRecord]]] = {
    facts.GroupEpochSet: _encode_epoch,
    facts.MemberSubscribed: _encode_subscribed,
    facts.TargetsSet: _encode_targets,
    facts.CurrentSet: _encode_current,
    facts.MemberLeft: _encode_left,
    facts.ConsumerGroupDeleted: _encode_deleted,
}


# --- reading -------------------------------------------------------------------------------------------------


def decode(entry: JournalRecord) -> Any | None:
    """The fact to apply, or None for a record that is not ours, not understood, or needs nothing done."""
    return decode_with(_DECODERS, entry)


def decode_with(
    decoders: dict[int, Callable[[FieldReader, FieldReader | None], Any]], entry: JournalRecord
) -> Any | None:
    try:
        key = FieldReader(entry.key)
        decoder = decoders.get(key.number(INT16))
        if decoder is None:
            return None
        if entry.value is None:
            return decoder(key, None)
        value = FieldReader(entry.value)
        return decoder(key, value) if value.number(INT16) == 0 else None
    except MalformedFields:
        return None


def _decode_epoch(key: FieldReader, value: FieldReader | None) -> Any:
    group_id = key.string()
    if value is None:
        return facts.ConsumerGroupDeleted(group_id)
    epoch, tags = value.number(INT32), value.tags()
    fingerprint = FieldReader(tags[_HASH_TAG]).number(INT64) if _HASH_TAG in tags else 0
    since = FieldReader(tags[_EMPTY_SINCE_TAG]).number(INT64) if _EMPTY_SINCE_TAG in tags else -1
    return facts.GroupEpochSet(group_id, epoch, fingerprint, since)


def _decode_subscribed(key: FieldReader, value: FieldReader | None) -> Any:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return facts.MemberLeft(group_id, member_id)
    instance_id, rack_id = value.compact_nullable(), value.compact_nullable()
    client_id, client_host = value.compact_string(), value.compact_string()
    topics = tuple(value.compact_array(FieldReader.compact_string))
    pattern, rebalance_timeout_ms = value.compact_nullable(), value.number(INT32)
    assignor, tags = value.compact_nullable(), value.tags()
    classic = _decode_classic(FieldReader(tags[_CLASSIC_TAG])) if _CLASSIC_TAG in tags else None
    reader = FieldReader(tags[_READER_TAG]).compact_string() if _READER_TAG in tags else ""
    subscription = ConsumerSubscription(
        topics,
        pattern,
        instance_id,
        rack_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        assignor,
        classic,
        reader,
    )
    return facts.MemberSubscribed(group_id, member_id, subscription)


def _decode_classic(value: FieldReader) -> ClassicMetadata | None:
    if value.number(INT8) < 0:
        return None
    session_timeout_ms = value.number(INT32)
    return ClassicMetadata(session_timeout_ms, tuple(value.compact_array(_decode_protocol)))


def _decode_protocol(value: FieldReader) -> Protocol:
    protocol = Protocol(value.compact_string(), value.compact_bytes() or b"")
    value.tags()
    return protocol


def decode_assignment(value: FieldReader) -> Assignment:
    topics = value.compact_array(_decode_topic)
    return frozenset((topic_id, partition) for topic_id, indexes in topics for partition in indexes)


def _decode_topic(value: FieldReader) -> tuple[bytes, list[int]]:
    topic = value.raw(16), value.compact_array(lambda reader: reader.number(INT32))
    value.tags()
    return topic


def _decode_target_epoch(key: FieldReader, value: FieldReader | None) -> Any:
    # The tombstone says nothing that the group's own does not.
    return None if value is None else facts.TargetsSet(key.string(), value.number(INT32), ())


def _decode_target(key: FieldReader, value: FieldReader | None) -> Any:
    group_id, member_id = key.string(), key.string()
    return facts.TargetLoaded(group_id, member_id, None if value is None else decode_assignment(value))


def _decode_current(key: FieldReader, value: FieldReader | None) -> Any:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return facts.CurrentForgotten(group_id, member_id)
    epoch, previous_epoch, state = value.number(INT32), value.number(INT32), value.number(INT8)
    if state not in MemberState.__members__.values():
        return None
    assigned, revoking = decode_assignment(value), decode_assignment(value)
    return facts.CurrentSet(
        group_id, member_id, epoch, previous_epoch, MemberState(state), assigned, revoking
    )


_DECODERS: dict[int, Callable[[FieldReader, FieldReader | None], Any]] = {
    GROUP_KEY: _decode_epoch,
    MEMBER_KEY: _decode_subscribed,
    TARGET_EPOCH_KEY: _decode_target_epoch,
    TARGET_KEY: _decode_target,
    CURRENT_KEY: _decode_current,
}
