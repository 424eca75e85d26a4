"""Door: OffsetDelete (47): forget committed offsets of partitions the group is not subscribed to."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MAX_OFFSETS_AT_ONCE
from headrace.groups.commands import DeleteOffsets, DeleteOffsetsResult
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import GROUP, TOPIC, delete, needs, read
from headrace.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

KEY = 47
VERSIONS = (0, 0)
RIGHTS = needs(delete(GROUP, "group_id"), read(TOPIC, "topics[].name"))
PARTS = (Parts("topics", "topics"),)


async def handle(call: Call[OffsetDeleteRequest]) -> OffsetDeleteResponse:
    request = call.request
    partitions = tuple(
        (topic.name, entry.partition_index) for topic in request.topics for entry in topic.partitions
    )
    errors: dict[tuple[str, int], ErrorKind] = {}
    for first in range(0, max(len(partitions), 1), MAX_OFFSETS_AT_ONCE):
        # A3: in commands of a bounded size. Deleting twice is deleting once, so who hears an error can repeat all of it.
        result = await _delete(call, request.group_id, partitions[first : first + MAX_OFFSETS_AT_ONCE])
        if result.error is not ErrorKind.NONE:
            return OffsetDeleteResponse(error_code=result.error.kafka_code)
        errors |= {(outcome.topic, outcome.partition): outcome.error for outcome in result.partitions}
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [
                    OffsetDeleteResponsePartition(
                        entry.partition_index,
                        errors.get((topic.name, entry.partition_index), ErrorKind.NONE).kafka_code,
                    )
                    for entry in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _delete(
    call: Call[OffsetDeleteRequest], group_id: str, partitions: tuple[tuple[str, int], ...]
) -> DeleteOffsetsResult:
    try:
        result: DeleteOffsetsResult = await call.services.groups.ask(
            group_id, DeleteOffsets(group_id, partitions)
        )
    except HeadraceError as problem:
        return DeleteOffsetsResult(problem.kind)
    return result
