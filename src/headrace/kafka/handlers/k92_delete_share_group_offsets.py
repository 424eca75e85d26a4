"""Door: DeleteShareGroupOffsets (92): an empty share group forgets topics, and begins anew when it reads them again."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import ZERO_UUID, TopicPartition
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import GROUP, TOPIC, delete, needs, read
from headrace.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

KEY = 92
VERSIONS = (0, 0)
RIGHTS = needs(delete(GROUP, "group_id"), read(TOPIC, "topics[].topic_name"))
PARTS = (Parts("topics", "responses"),)


async def handle(call: Call[DeleteShareGroupOffsetsRequest]) -> DeleteShareGroupOffsetsResponse:
    request = call.request
    try:
        await call.services.share_offsets.require_group(request.group_id, empty=True)
    except HeadraceError as problem:
        return DeleteShareGroupOffsetsResponse(
            error_code=problem.kind.kafka_code, error_message=problem.detail
        )
    rows = [
        await _forget(call, request.group_id, topic.topic_name)
        async for topic in call.pace().over(request.topics)
    ]
    return DeleteShareGroupOffsetsResponse(responses=rows)


async def _forget(
    call: Call[DeleteShareGroupOffsetsRequest], group: str, name: str
) -> DeleteShareGroupOffsetsResponseTopic:
    topic = call.broker.image.topic(name)
    if topic is None:
        kind = ErrorKind.UNKNOWN_TOPIC_OR_PARTITION
        return DeleteShareGroupOffsetsResponseTopic(
            name, ZERO_UUID, kind.kafka_code, f"there is no topic {name}"
        )
    try:
        for number in range(len(topic.partitions)):
            await call.services.share_offsets.forget(group, TopicPartition(name, number))
    except HeadraceError as problem:
        return DeleteShareGroupOffsetsResponseTopic(name, topic.id, problem.kind.kafka_code, problem.detail)
    return DeleteShareGroupOffsetsResponseTopic(name, topic.id)
