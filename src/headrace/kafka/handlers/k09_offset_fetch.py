"""Door: OffsetFetch (9). v2: null topics = all. v7: require_stable. v8: many groups at once. v9: member epoch.
v10: topic ids.

An unknown group or partition is offset -1 without an error; clients depend on it. And it is answered wherever it is asked: librdkafka
gives an assignment up for good when its offsets are refused with NOT_COORDINATOR, while its heartbeats go on
([decision 0083](../../../../docs/decisions/0083-offsets-are-told-at-any-broker.md)).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from headrace.broker.pacing import Pace
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import ZERO_UUID
from headrace.groups.commands import FetchedOffset, FetchOffsets, FetchOffsetsResult
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import GROUP, TOPIC, Operation, describe, needs
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

KEY = 9
VERSIONS = (1, 10)
RIGHTS = needs(
    describe(GROUP, "group_id", "groups[].group_id"),
    describe(TOPIC, "topics[].name"),
).showing(describe(TOPIC))
PARTS = (Parts("topics", "topics"), Parts("groups", "groups"))
TOPIC_IDS = 10
LAST_WORDS = (ErrorKind.NOT_COORDINATOR, ErrorKind.COORDINATOR_NOT_AVAILABLE)
"""What librdkafka does not ask again after, for all that both pass."""
ELSEWHERE_S = 2.0
"""Answers of one connection come in order: what is behind this one waits as long."""

Topics = tuple[tuple[str, tuple[int, ...]], ...] | None


async def handle(call: Call[OffsetFetchRequest]) -> OffsetFetchResponse:
    request = call.request
    pace = call.pace()
    if call.version >= 8:
        # Each group once: the answer must not grow with how often it is repeated (A3).
        wanted_groups = {group.group_id: group for group in request.groups}.values()
        return OffsetFetchResponse(
            groups=[await _group(call, group, pace) async for group in pace.over(wanted_groups)]
        )
    wanted = _topics(request.topics)
    result = await _fetch(call, request.group_id, wanted, None, -1)
    if call.version < 2 and result.error is not ErrorKind.NONE:
        # Version 1 has no place for a group error but the partitions.
        failed = tuple(
            FetchedOffset(name, number, error=result.error)
            for name, numbers in wanted or ()
            for number in numbers
        )
        result = FetchOffsetsResult(result.error, failed)
    return OffsetFetchResponse(
        error_code=result.error.kafka_code,
        topics=[
            OffsetFetchResponseTopic(
                name,
                [
                    OffsetFetchResponsePartition(
                        entry.partition,
                        entry.offset,
                        entry.leader_epoch,
                        entry.metadata,
                        entry.error.kafka_code,
                    )
                    async for entry in pace.over(entries)
                ],
            )
            async for name, entries in pace.over(_by_topic(result).items())
        ],
    )


async def _group(
    call: Call[OffsetFetchRequest], group: OffsetFetchRequestGroup, pace: Pace
) -> OffsetFetchResponseGroup:
    by_id = call.version >= TOPIC_IDS
    denied = _take_out_denied(call, group, by_id)
    wanted = _topics_by_id(call, group) if by_id else _topics(group.topics)
    result = await _fetch(call, group.group_id, wanted, group.member_id, group.member_epoch)
    topics: list[OffsetFetchResponseTopics] = []
    left = {topic.topic_id: topic for topic in group.topics or ()} if by_id else {}
    async for name, entries in pace.over(_by_topic(result).items()):
        known = call.broker.image.topic(name) if by_id else None
        topic_id = ZERO_UUID if known is None else known.id
        if by_id and (known is None or (group.topics is not None and topic_id not in left)):
            continue  # deleted, or made again, since it was asked for
        left.pop(topic_id, None)
        rows = [
            OffsetFetchResponsePartitions(
                entry.partition, entry.offset, entry.leader_epoch, entry.metadata, entry.error.kafka_code
            )
            async for entry in pace.over(entries)
        ]
        topics.append(OffsetFetchResponseTopics(name, topic_id, rows))
    if result.error is ErrorKind.NONE:
        async for topic in pace.over(left.values()):
            unknown = ErrorKind.UNKNOWN_TOPIC_ID.kafka_code
            lost = [
                OffsetFetchResponsePartitions(number, -1, -1, "", unknown)
                for number in dict.fromkeys(topic.partition_indexes)
            ]
            topics.append(OffsetFetchResponseTopics("", topic.topic_id, lost))
    if group.topics is None:
        topics = [topic for topic in topics if call.sees(TOPIC, topic.name)]
    return OffsetFetchResponseGroup(group.group_id, topics + denied, result.error.kafka_code)


def _take_out_denied(
    call: Call[OffsetFetchRequest], group: OffsetFetchRequestGroup, by_id: bool
) -> list[OffsetFetchResponseTopics]:
    """A44: what the caller may not see is answered the same whether it is there or not; by id, as if it were not."""
    if call.session.access is None or not group.topics:
        return []
    image = call.broker.image
    kept: list[OffsetFetchRequestTopics] = []
    denied: list[OffsetFetchResponseTopics] = []
    code = ErrorKind.UNKNOWN_TOPIC_ID if by_id else ErrorKind.TOPIC_AUTHORIZATION_FAILED
    for topic in group.topics:
        known = image.topic_by_id(topic.topic_id) if by_id else None
        name = topic.name if not by_id else "" if known is None else known.name
        if name and call.refuses(Operation.DESCRIBE, TOPIC, name):
            rows = [
                OffsetFetchResponsePartitions(number, -1, -1, "", code.kafka_code)
                for number in dict.fromkeys(topic.partition_indexes)
            ]
            denied.append(OffsetFetchResponseTopics(topic.name, topic.topic_id, rows))
        else:
            kept.append(topic)
    group.topics = kept
    return denied


def _topics_by_id(call: Call[OffsetFetchRequest], group: OffsetFetchRequestGroup) -> Topics:
    """Those that there are, by name: the coordinator's memory is compared with the id of the topic that has it now."""
    if group.topics is None:
        return None
    found = [
        (call.broker.image.topic_by_id(topic.topic_id), topic.partition_indexes) for topic in group.topics
    ]
    return tuple((topic.name, tuple(numbers)) for topic, numbers in found if topic is not None)


def _topics(topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None) -> Topics:
    if topics is None:
        return None
    return tuple((topic.name, tuple(topic.partition_indexes)) for topic in topics)


def _by_topic(result: FetchOffsetsResult) -> dict[str, list[FetchedOffset]]:
    topics: dict[str, list[FetchedOffset]] = {}
    for entry in result.partitions:
        topics.setdefault(entry.topic, []).append(entry)
    return topics


async def _fetch(
    call: Call[OffsetFetchRequest], group_id: str, topics: Topics, member_id: str | None, member_epoch: int
) -> FetchOffsetsResult:
    command = FetchOffsets(group_id, topics, call.request.require_stable, member_id, member_epoch)
    try:
        return await call.services.groups.fetch_offsets(group_id, command)
    except HeadraceError as problem:
        kind = problem.kind
    # A broker that asks goes on looking by itself, so no question is passed on twice.
    if kind not in LAST_WORDS or call.session.principal.is_broker:
        return FetchOffsetsResult(kind)
    if kind is ErrorKind.NOT_COORDINATOR:
        with suppress(HeadraceError):
            return await _elsewhere(call, command)
    return FetchOffsetsResult(ErrorKind.COORDINATOR_LOAD_IN_PROGRESS)


async def _elsewhere(call: Call[OffsetFetchRequest], command: FetchOffsets) -> FetchOffsetsResult:
    """What the coordinator says; whether the caller may ask was decided here. Raises HeadraceError."""
    image = call.broker.image
    node = call.services.coordinators.of_group(command.group_id)
    if node.id == image.broker_id:
        raise HeadraceError(ErrorKind.COORDINATOR_LOAD_IN_PROGRESS)
    # Who asks by id is told of that topic: the coordinator may know another one of the name by now.
    by_id = call.version >= TOPIC_IDS
    topics: list[OffsetFetchRequestTopics] | None = None
    if command.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name, _id_of(image, name) if by_id else ZERO_UUID, list(numbers))
            for name, numbers in command.topics
        ]
    group = OffsetFetchRequestGroup(command.group_id, command.member_id, command.member_epoch, topics)
    request = OffsetFetchRequest(groups=[group], require_stable=command.require_stable)
    version = TOPIC_IDS if by_id else TOPIC_IDS - 1
    response = await call.services.peers.call(node.id, KEY, version, request, ELSEWHERE_S)
    (found,) = response.groups
    error = ErrorKind(found.error_code)
    if error in LAST_WORDS:
        raise HeadraceError(error)
    return FetchOffsetsResult(
        error,
        tuple(
            FetchedOffset(
                name,
                row.partition_index,
                row.committed_offset,
                row.committed_leader_epoch,
                row.metadata,
                ErrorKind(row.error_code),
            )
            for topic in found.topics
            if (name := _name_of(image, topic.topic_id) if by_id else topic.name)
            for row in topic.partitions
        ),
    )


def _id_of(image: ClusterImage, name: str) -> bytes:
    known = image.topic(name)
    return known.id if known is not None else ZERO_UUID


def _name_of(image: ClusterImage, topic_id: bytes) -> str:
    known = image.topic_by_id(topic_id)
    return known.name if known is not None else ""
