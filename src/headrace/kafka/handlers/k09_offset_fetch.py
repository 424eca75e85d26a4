"""Door: OffsetFetch (9). v2: null topics = all. v7: require_stable. v8: many groups at once. v9: member epoch.

An unknown group or partition is offset -1 without an error; clients depend on it. Not served: v10 (topic ids).
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.groups.commands import FetchedOffset, FetchOffsets, FetchOffsetsResult
from headrace.kafka.call import Call
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
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
VERSIONS = (1, 9)

Topics = tuple[tuple[str, tuple[int, ...]], ...] | None


async def handle(call: Call) -> OffsetFetchResponse:
    request: OffsetFetchRequest = call.request
    pace = call.pace()
    if call.version >= 8:
        groups = []
        # Each group once: the answer must not grow with how often it is repeated (A3).
        async for group in pace.over({group.group_id: group for group in request.groups}.values()):
            wanted = _topics(group.topics)
            result = await _fetch(call, group.group_id, wanted, group.member_id, group.member_epoch)
            groups.append(
                OffsetFetchResponseGroup(
                    group.group_id,
                    [
                        OffsetFetchResponseTopics(
                            name=name,
                            partitions=[
                                OffsetFetchResponsePartitions(
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
                    result.error.kafka_code,
                )
            )
        return OffsetFetchResponse(groups=groups)
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
    call: Call, group_id: str, topics: Topics, member_id: str | None, member_epoch: int
) -> FetchOffsetsResult:
    try:
        return await call.broker.groups.fetch_offsets(
            group_id,
            lambda waiter: FetchOffsets(
                waiter, group_id, topics, call.request.require_stable, member_id, member_epoch
            ),
        )
    except HeadraceError as problem:
        return FetchOffsetsResult(problem.kind)
