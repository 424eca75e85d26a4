"""Codec: streams groups as Kafka's StreamsGroup* records (all flexible, value version 0).

17  group          epoch, what the topics looked like (tags: 0 validated topology, 1 settings, 10000 empty since: ours)
19  group, member  what the member says of itself
20  group          epoch of the target assignment (tag 0: when it was made)
21  group, member  target assignment
22  group, member  current assignment
23  group          topology
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headrace.core.plan import JournalRecord
from headrace.core.units import is_digits
from headrace.groups.assigned import MemberState
from headrace.groups.consumer.journal import decode_with, record
from headrace.groups.fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    NO_TAGS,
    UINT16,
    FieldReader,
    compact,
    compact_array,
    tagged,
)
from headrace.groups.streams import facts
from headrace.groups.streams.members import MemberProfile, Role, Task, Tasks, of_role
from headrace.groups.streams.topology import Copartition, InternalTopic, Subtopology, Topology

GROUP_KEY = 17
MEMBER_KEY = 19
TARGET_EPOCH_KEY = 20
TARGET_KEY = 21
CURRENT_KEY = 22
TOPOLOGY_KEY = 23

_VALIDATED_TAG = 0
_SETTINGS_TAG = 1
_EMPTY_SINCE_TAG = 10_000
_MADE_TAG = 0
_SINCE_TAG = 0
_STANDBYS = "num.standby.replicas"


# --- writing -------------------------------------------------------------------------------------------------


def encode(fact: Any) -> Sequence[JournalRecord]:
    return tuple(ENCODERS[type(fact)](fact))


def _encode_epoch(fact: facts.StreamsEpochSet) -> Iterable[JournalRecord]:
    tags = {_SETTINGS_TAG: _pairs([(_STANDBYS, str(fact.standby_replicas))])}
    if fact.validated_epoch != -1:
        tags[_VALIDATED_TAG] = INT32.pack(fact.validated_epoch)
    if fact.empty_since_wall_ms >= 0:
        tags[_EMPTY_SINCE_TAG] = INT64.pack(fact.empty_since_wall_ms)
    value = INT32.pack(fact.epoch) + INT64.pack(fact.fingerprint) + tagged(tags)
    yield record(GROUP_KEY, (fact.group_id,), value)


def _encode_topology(fact: facts.TopologySet) -> Iterable[JournalRecord]:
    subtopologies = [_subtopology(sub) for sub in fact.topology.subtopologies]
    value = INT32.pack(fact.topology.epoch) + compact_array(subtopologies) + NO_TAGS
    yield record(TOPOLOGY_KEY, (fact.group_id,), value)


def _subtopology(sub: Subtopology) -> bytes:
    none = compact_array([])  # no regular expressions
    copartitions = [
        _places(group.sources) + none + _places(group.repartition_sources) + NO_TAGS
        for group in sub.copartitions
    ]
    return b"".join(
        (
            compact(sub.subtopology_id),
            compact_array([compact(name) for name in sub.sources]),
            none,
            compact_array([_topic(topic) for topic in sub.changelogs]),
            compact_array([compact(name) for name in sub.repartition_sinks]),
            compact_array([_topic(topic) for topic in sub.repartition_sources]),
            compact_array(copartitions),
            NO_TAGS,
        )
    )


def _topic(topic: InternalTopic) -> bytes:
    numbers = INT32.pack(topic.partitions) + INT16.pack(topic.replication_factor)
    return compact(topic.name) + numbers + _pairs(topic.configs) + NO_TAGS


def _places(places: Iterable[int]) -> bytes:
    return compact_array([INT16.pack(place) for place in places])


def _pairs(pairs: Iterable[tuple[str, str]]) -> bytes:
    return compact_array([compact(key) + compact(value) + NO_TAGS for key, value in pairs])


def _encode_member(fact: facts.StreamsMemberSet) -> Iterable[JournalRecord]:
    given = fact.profile
    endpoint = INT8.pack(-1)
    if given.endpoint is not None:
        host, port = given.endpoint
        endpoint = INT8.pack(1) + compact(host) + UINT16.pack(port) + NO_TAGS
    value = b"".join(
        (
            compact(None),  # instance id: there are no static members
            compact(given.rack_id),
            compact(given.client_id),
            compact(given.client_host),
            INT32.pack(given.rebalance_timeout_ms),
            INT32.pack(given.topology_epoch),
            compact(given.process_id),
            endpoint,
            _pairs(given.tags),
            NO_TAGS,
        )
    )
    yield record(MEMBER_KEY, (fact.group_id, fact.member_id), value)


def _tasks(tasks: Tasks, since: Mapping[Task, int] | None = None) -> bytes:
    """Active, standby and warm-up tasks; the active ones with the epochs they came with."""
    return b"".join(
        compact_array(
            [
                compact(subtopology)
                + _numbers(numbers)
                + _since(subtopology, numbers, since if role is Role.ACTIVE else None)
                for subtopology, numbers in of_role(tasks, role)
            ]
        )
        for role in Role
    )


def _since(subtopology: str, numbers: Sequence[int], since: Mapping[Task, int] | None) -> bytes:
    if since is None:
        return NO_TAGS
    epochs = _numbers([since[Task(Role.ACTIVE, subtopology, number)] for number in numbers])
    return tagged({_SINCE_TAG: epochs})


def _numbers(numbers: Iterable[int]) -> bytes:
    return compact_array([INT32.pack(number) for number in numbers])


def _encode_targets(fact: facts.StreamsTargetsSet) -> Iterable[JournalRecord]:
    for member_id, tasks in fact.targets:
        yield record(TARGET_KEY, (fact.group_id, member_id), _tasks(tasks) + NO_TAGS)
    tags = tagged({_MADE_TAG: INT64.pack(fact.at_wall_ms)} if fact.at_wall_ms else {})
    yield record(TARGET_EPOCH_KEY, (fact.group_id,), INT32.pack(fact.epoch) + tags)


def _encode_current(fact: facts.StreamsCurrentSet) -> Iterable[JournalRecord]:
    epochs = INT32.pack(fact.epoch) + INT32.pack(fact.previous_epoch) + INT8.pack(fact.state)
    value = epochs + _tasks(fact.assigned, fact.since) + _tasks(fact.revoking, fact.since) + NO_TAGS
    yield record(CURRENT_KEY, (fact.group_id, fact.member_id), value)


def _encode_left(fact: facts.StreamsMemberLeft) -> Iterable[JournalRecord]:
    for kind in (CURRENT_KEY, TARGET_KEY, MEMBER_KEY):
        yield record(kind, (fact.group_id, fact.member_id), None)


def _encode_deleted(fact: facts.StreamsGroupDeleted) -> Iterable[JournalRecord]:
    for kind in (TARGET_EPOCH_KEY, TOPOLOGY_KEY, GROUP_KEY):
        yield record(kind, (fact.group_id,), None)


ENCODERS: dict[type, Callable[[Any], Iterable[JournalRecord]]] = {
    facts.StreamsEpochSet: _encode_epoch,
    facts.TopologySet: _encode_topology,
    facts.StreamsMemberSet: _encode_member,
    facts.StreamsTargetsSet: _encode_targets,
    facts.StreamsCurrentSet: _encode_current,
    facts.StreamsMemberLeft: _encode_left,
    facts.StreamsGroupDeleted: _encode_deleted,
}


# --- reading -------------------------------------------------------------------------------------------------


def decode(entry: JournalRecord) -> Any | None:
    """The fact to apply, or None for a record that is not ours, not understood, or needs nothing done."""
    return decode_with(_DECODERS, entry)


def _decode_epoch(key: FieldReader, value: FieldReader | None) -> Any:
    group_id = key.string()
    if value is None:
        return facts.StreamsGroupDeleted(group_id)
    epoch, fingerprint, tags = value.number(INT32), value.number(INT64), value.tags()
    validated = FieldReader(tags[_VALIDATED_TAG]).number(INT32) if _VALIDATED_TAG in tags else -1
    settings = (
        dict(FieldReader(tags[_SETTINGS_TAG]).compact_array(_decode_pair)) if _SETTINGS_TAG in tags else {}
    )
    standbys = settings.get(_STANDBYS, "")
    since = FieldReader(tags[_EMPTY_SINCE_TAG]).number(INT64) if _EMPTY_SINCE_TAG in tags else -1
    return facts.StreamsEpochSet(
        group_id, epoch, fingerprint, validated, int(standbys) if is_digits(standbys) else 0, since
    )


def _decode_topology(key: FieldReader, value: FieldReader | None) -> Any:
    if value is None:
        return None  # the tombstone of the group itself follows
    group_id, epoch = key.string(), value.number(INT32)
    return facts.TopologySet(group_id, Topology(epoch, tuple(value.compact_array(_decode_subtopology))))


def _decode_subtopology(value: FieldReader) -> Subtopology:
    subtopology_id = value.compact_string()
    sources = tuple(value.compact_array(FieldReader.compact_string))
    value.compact_array(FieldReader.compact_string)
    changelogs = tuple(value.compact_array(_decode_topic))
    sinks = tuple(value.compact_array(FieldReader.compact_string))
    repartition_sources = tuple(value.compact_array(_decode_topic))
    copartitions = tuple(value.compact_array(_decode_copartition))
    value.tags()
    return Subtopology(subtopology_id, sources, repartition_sources, sinks, changelogs, copartitions)


def _decode_topic(value: FieldReader) -> InternalTopic:
    name, partitions, replicas = value.compact_string(), value.number(INT32), value.number(INT16)
    configs = tuple(value.compact_array(_decode_pair))
    value.tags()
    return InternalTopic(name, partitions, replicas, configs)


def _decode_copartition(value: FieldReader) -> Copartition:
    sources, _, repartition_sources = (
        tuple(value.compact_array(lambda reader: reader.number(INT16))) for _ in range(3)
    )
    value.tags()
    return Copartition(sources, repartition_sources)


def _decode_pair(value: FieldReader) -> tuple[str, str]:
    pair = value.compact_string(), value.compact_string()
    value.tags()
    return pair


def _decode_member(key: FieldReader, value: FieldReader | None) -> Any:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return facts.StreamsMemberLeft(group_id, member_id)
    value.compact_nullable()
    rack_id, client_id, client_host = value.compact_nullable(), value.compact_string(), value.compact_string()
    rebalance_timeout_ms, topology_epoch = value.number(INT32), value.number(INT32)
    process_id, endpoint = value.compact_string(), None
    if value.number(INT8) >= 0:
        endpoint = value.compact_string(), value.number(UINT16)
        value.tags()
    tags = tuple(value.compact_array(_decode_pair))
    profile = MemberProfile(
        rack_id, client_id, client_host, rebalance_timeout_ms, topology_epoch, process_id, endpoint, tags
    )
    return facts.StreamsMemberSet(group_id, member_id, profile)


def _decode_target_epoch(key: FieldReader, value: FieldReader | None) -> Any:
    if value is None:
        return None  # the tombstone says nothing that the group's own does not
    epoch, tags = value.number(INT32), value.tags()
    at_wall_ms = FieldReader(tags[_MADE_TAG]).number(INT64) if _MADE_TAG in tags else 0
    return facts.StreamsTargetsSet(key.string(), epoch, (), at_wall_ms)


def _decode_tasks(value: FieldReader) -> dict[Task, int]:
    """With the epochs that active tasks came with; 0 when that was not said."""
    found: dict[Task, int] = {}
    for role in Role:
        for subtopology, numbers, epochs in value.compact_array(_decode_task_ids):
            known = epochs if len(epochs) == len(numbers) else [0] * len(numbers)
            for number, epoch in zip(numbers, known, strict=True):
                found[Task(role, subtopology, number)] = epoch
    return found


def _decode_task_ids(value: FieldReader) -> tuple[str, list[int], list[int]]:
    subtopology = value.compact_string()
    numbers, tags = value.compact_array(lambda reader: reader.number(INT32)), value.tags()
    epochs: list[int] = []
    if _SINCE_TAG in tags:
        epochs = FieldReader(tags[_SINCE_TAG]).compact_array(lambda reader: reader.number(INT32))
    return subtopology, numbers, epochs


def _decode_target(key: FieldReader, value: FieldReader | None) -> Any:
    group_id, member_id = key.string(), key.string()
    target = None if value is None else frozenset(_decode_tasks(value))
    return facts.StreamsTargetLoaded(group_id, member_id, target)


def _decode_current(key: FieldReader, value: FieldReader | None) -> Any:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return facts.StreamsCurrentForgotten(group_id, member_id)
    epoch, previous_epoch, state = value.number(INT32), value.number(INT32), value.number(INT8)
    if state not in MemberState.__members__.values():
        return None
    assigned, revoking = _decode_tasks(value), _decode_tasks(value)
    since = {task: at for task, at in (assigned | revoking).items() if task.role is Role.ACTIVE}
    return facts.StreamsCurrentSet(
        group_id,
        member_id,
        epoch,
        previous_epoch,
        MemberState(state),
        frozenset(assigned),
        frozenset(revoking),
        since,
    )


_DECODERS: dict[int, Callable[[FieldReader, FieldReader | None], Any]] = {
    GROUP_KEY: _decode_epoch,
    MEMBER_KEY: _decode_member,
    TARGET_EPOCH_KEY: _decode_target_epoch,
    TARGET_KEY: _decode_target,
    CURRENT_KEY: _decode_current,
    TOPOLOGY_KEY: _decode_topology,
}
