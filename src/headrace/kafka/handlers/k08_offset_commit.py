"""Door: OffsetCommit (8). v6: leader epoch. v7: static members. v9: member epoch (KIP-848).

A topic or partition that does not exist is refused here, per partition, before the coordinator is asked.
Not served: v10 (topic ids).
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.groups.commands import CommitOffsets, CommitResult, OffsetToCommit
from headrace.kafka.call import Call
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

KEY = 8
VERSIONS = (2, 9)


async def handle(call: Call) -> OffsetCommitResponse:
    request: OffsetCommitRequest = call.request
    errors: dict[tuple[str, int], ErrorKind] = {}
    offsets: list[OffsetToCommit] = []
    for topic in request.topics:
        for entry in topic.partitions:
            if not call.broker.image.has_partition(topic.name, entry.partition_index):
                errors[topic.name, entry.partition_index] = ErrorKind.UNKNOWN_TOPIC_OR_PARTITION
                continue
            offsets.append(
                OffsetToCommit(
                    topic.name,
                    entry.partition_index,
                    entry.committed_offset,
                    entry.committed_leader_epoch,
                    entry.committed_metadata,
                )
            )
    if offsets or not request.topics:
        result = await _commit(call, request, tuple(offsets))
        for offset in offsets:
            errors[offset.topic, offset.partition] = result.error
        for outcome in result.partitions:
            errors[outcome.topic, outcome.partition] = outcome.error
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        entry.partition_index, errors[topic.name, entry.partition_index].kafka_code
                    )
                    for entry in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _commit(
    call: Call, request: OffsetCommitRequest, offsets: tuple[OffsetToCommit, ...]
) -> CommitResult:
    try:
        result: CommitResult = await call.broker.groups.ask(
            request.group_id,
            lambda waiter: CommitOffsets(
                waiter=waiter,
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
