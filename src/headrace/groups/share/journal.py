"""Codec: share groups as Kafka's ShareGroup* records (all flexible, value version 0).

10  group, member  subscription
11  group          epoch (tag 0: what the topics looked like)
12  group          epoch of the target assignment
13  group, member  target assignment
14  group, member  current assignment
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headrace.core.plan import JournalRecord
from headrace.groups.consumer.journal import assignment, decode_assignment, decode_with, record
from headrace.groups.fields import INT8, INT32, INT64, NO_TAGS, FieldReader, compact, compact_array, tagged
from headrace.groups.share import facts
from headrace.groups.share.members import ShareSubscription

MEMBER_KEY = 10
GROUP_KEY = 11
TARGET_EPOCH_KEY = 12
TARGET_KEY = 13
CURRENT_KEY = 14

_STABLE = 1
_HASH_TAG = 0


def encode(fact: Any) -> Sequence[JournalRecord]:
    return tuple(ENCODERS[type(fact)](fact))


def _encode_epoch(fact: facts.ShareEpochSet) -> Iterable[JournalRecord]:
    tags = tagged({_HASH_TAG: INT64.pack(fact.fingerprint)})
    yield record(GROUP_KEY, (fact.group_id,), INT32.pack(fact.epoch) + tags)


def _encode_subscribed(fact: facts.ShareMemberSubscribed) -> Iterable[JournalRecord]:
    given = fact.subscription
    value = b"".join(
        (
            compact(given.rack_id),
            compact(given.client_id),
            compact(given.client_host),
            compact_array([compact(topic) for topic in given.topics]),
            NO_TAGS,
        )
    )
    yield record(MEMBER_KEY, (fact.group_id, fact.member_id), value)


def _encode_targets(fact: facts.ShareTargetsSet) -> Iterable[JournalRecord]:
    for member_id, parts in fact.targets:
        yield record(TARGET_KEY, (fact.group_id, member_id), assignment(parts) + NO_TAGS)
    yield record(TARGET_EPOCH_KEY, (fact.group_id,), INT32.pack(fact.epoch) + NO_TAGS)


def _encode_current(fact: facts.ShareCurrentSet) -> Iterable[JournalRecord]:
    epochs = INT32.pack(fact.epoch) + INT32.pack(fact.previous_epoch) + INT8.pack(_STABLE)
    yield record(CURRENT_KEY, (fact.group_id, fact.member_id), epochs + assignment(fact.assigned) + NO_TAGS)


def _encode_left(fact: facts.ShareMemberLeft) -> Iterable[JournalRecord]:
    for kind in (CURRENT_KEY, TARGET_KEY, MEMBER_KEY):
        yield record(kind, (fact.group_id, fact.member_id), None)


def _encode_deleted(fact: facts.ShareGroupDeleted) -> Iterable[JournalRecord]:
    for kind in (TARGET_EPOCH_KEY, GROUP_KEY):
        yield record(kind, (fact.group_id,), None)


ENCODERS: dict[type, Callable[[Any], Iterable[JournalRecord]]] = {
    facts.ShareEpochSet: _encode_epoch,
    facts.ShareMemberSubscribed: _encode_subscribed,
    facts.ShareTargetsSet: _encode_targets,
    facts.ShareCurrentSet: _encode_current,
    facts.ShareMemberLeft: _encode_left,
    facts.ShareGroupDeleted: _encode_deleted,
}


def decode(entry: JournalRecord) -> Any | None:
    """The fact to apply, or None for a record that is not ours, not understood, or needs nothing done."""
    return decode_with(_DECODERS, entry)


def _decode_epoch(key: FieldReader, value: FieldReader | None) -> Any:
    group_id = key.string()
    if value is None:
        return facts.ShareGroupDeleted(group_id)
    epoch, tags = value.number(INT32), value.tags()
    fingerprint = FieldReader(tags[_HASH_TAG]).number(INT64) if _HASH_TAG in tags else 0
    return facts.ShareEpochSet(group_id, epoch, fingerprint)


def _decode_subscribed(key: FieldReader, value: FieldReader | None) -> Any:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return facts.ShareMemberLeft(group_id, member_id)
    rack_id, client_id, client_host = value.compact_nullable(), value.compact_string(), value.compact_string()
    topics = tuple(value.compact_array(FieldReader.compact_string))
    return facts.ShareMemberSubscribed(
        group_id, member_id, ShareSubscription(topics, rack_id, client_id, client_host)
    )


def _decode_target_epoch(key: FieldReader, value: FieldReader | None) -> Any:
    return None if value is None else facts.ShareTargetsSet(key.string(), value.number(INT32), ())


def _decode_target(key: FieldReader, value: FieldReader | None) -> Any:
    group_id, member_id = key.string(), key.string()
    target = None if value is None else decode_assignment(value)
    return facts.ShareTargetLoaded(group_id, member_id, target)


def _decode_current(key: FieldReader, value: FieldReader | None) -> Any:
    if value is None:
        return None  # the tombstone of its subscription, which follows, removes the member
    group_id, member_id = key.string(), key.string()
    epoch, previous_epoch = value.number(INT32), value.number(INT32)
    value.number(INT8)
    return facts.ShareCurrentSet(group_id, member_id, epoch, previous_epoch, decode_assignment(value))


_DECODERS: dict[int, Callable[[FieldReader, FieldReader | None], Any]] = {
    MEMBER_KEY: _decode_subscribed,
    GROUP_KEY: _decode_epoch,
    TARGET_EPOCH_KEY: _decode_target_epoch,
    TARGET_KEY: _decode_target,
    CURRENT_KEY: _decode_current,
}
