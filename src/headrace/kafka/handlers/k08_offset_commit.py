"""Door: OffsetCommit (8). v6: leader epoch. v7: static members. v9: member epoch (KIP-848). v10: topic ids.

A topic or partition that does not exist is refused here, per partition, before the coordinator is asked.
"""

from __future__ import annotations

import asyncio

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MAX_OFFSETS_AT_ONCE
from headrace.groups.commands import CommitOffsets, CommitResult, OffsetToCommit
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import GROUP, TOPIC, needs, read
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

KEY = 8
VERSIONS = (2, 10)
RIGHTS = needs(read(GROUP, "group_id"), read(TOPIC, "topics[].name", "topics[].topic_id"))
PARTS = (Parts("topics", "topics"),)
TOPIC_IDS = 10
UNKNOWN = ErrorKind.UNKNOWN_TOPIC_OR_PARTITION


async def handle(call: Call[OffsetCommitRequest]) -> OffsetCommitResponse:
    request = call.request
    errors: dict[tuple[str | bytes, int], ErrorKind] = {}
    offsets: list[OffsetToCommit] = []
    pace = call.pace()
    image, by_id = call.broker.image, call.version >= TOPIC_IDS
    async for topic in pace.over(request.topics):
        known = image.topic_by_id(topic.topic_id) if by_id else image.topic(topic.name)
        async for entry in pace.over(topic.partitions):
            if known is None or not 0 <= entry.partition_index < len(known.partitions):
                unknown = ErrorKind.UNKNOWN_TOPIC_ID if by_id and known is None else UNKNOWN
                errors[_named(topic, by_id), entry.partition_index] = unknown
                continue
            offsets.append(
                OffsetToCommit(
                    known.name,
                    entry.partition_index,
                    entry.committed_offset,
                    entry.committed_leader_epoch,
                    entry.committed_metadata,
                    known.id,
                )
            )
    if offsets or not request.topics:
        async for offset, error in pace.over(await _commit_all(call, request, offsets)):
            errors[offset.topic_id if by_id else offset.topic, offset.partition] = error
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        entry.partition_index, errors[_named(topic, by_id), entry.partition_index].kafka_code
                    )
                    async for entry in pace.over(topic.partitions)
                ],
            )
            async for topic in pace.over(request.topics)
        ]
    )


def _named(topic: OffsetCommitRequestTopic, by_id: bool) -> str | bytes:
    return topic.topic_id if by_id else topic.name


async def _commit_all(
    call: Call[OffsetCommitRequest], request: OffsetCommitRequest, offsets: list[OffsetToCommit]
) -> list[tuple[OffsetToCommit, ErrorKind]]:
    """In commands of a bounded size, each of them decided in a turn of its own and all of them waiting for one sync (A3)."""
    chunks = [
        tuple(offsets[first : first + MAX_OFFSETS_AT_ONCE])
        for first in range(0, len(offsets), MAX_OFFSETS_AT_ONCE)
    ] or [()]
    waiting = []
    for chunk in chunks:
        waiting.append(asyncio.ensure_future(_commit(call, request, chunk)))
        await asyncio.sleep(0)
    found: list[tuple[OffsetToCommit, ErrorKind]] = []
    for chunk, result in zip(chunks, await asyncio.gather(*waiting), strict=True):
        outcomes = {(outcome.topic, outcome.partition): outcome.error for outcome in result.partitions}
        found += ((offset, outcomes.get((offset.topic, offset.partition), result.error)) for offset in chunk)
    return found


async def _commit(
    call: Call[OffsetCommitRequest], request: OffsetCommitRequest, offsets: tuple[OffsetToCommit, ...]
) -> CommitResult:
    try:
        result: CommitResult = await call.services.groups.ask(
            request.group_id,
            CommitOffsets(
                group_id=request.group_id,
                offsets=offsets,
                member_id=request.member_id,
                generation=request.generation_id_or_member_epoch,
                instance_id=request.group_instance_id,
                member_epoch_known=call.version >= 9,
                retention_ms=request.retention_time_ms if request.retention_time_ms >= 0 else None,
            ),
        )
    except HeadraceError as problem:
        return CommitResult(problem.kind)
    return result
