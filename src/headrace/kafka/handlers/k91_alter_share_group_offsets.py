"""Door: AlterShareGroupOffsets (91): where an empty share group goes on reading. Partition by partition.

A group that there is not yet is made, as in Kafka 4.2 (F35).
"""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.core.ids import ZERO_UUID, TopicPartition
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import GROUP, TOPIC, needs, read
from headrace.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

KEY = 91
VERSIONS = (0, 0)
RIGHTS = needs(read(GROUP, "group_id"), read(TOPIC, "topics[].topic_name"))
PARTS = (Parts("topics", "responses"),)


async def handle(call: Call[AlterShareGroupOffsetsRequest]) -> AlterShareGroupOffsetsResponse:
    request = call.request
    try:
        await call.services.share_offsets.make_group(request.group_id)
    except HeadraceError as problem:
        return AlterShareGroupOffsetsResponse(
            error_code=problem.kind.kafka_code, error_message=problem.detail
        )
    rows = []
    pace = call.pace()
    async for topic in pace.over(request.topics):
        known = call.broker.image.topic(topic.topic_name)
        done = [
            await _set(call, request.group_id, topic.topic_name, row)
            async for row in pace.over(topic.partitions)
        ]
        rows.append(
            AlterShareGroupOffsetsResponseTopic(topic.topic_name, known.id if known else ZERO_UUID, done)
        )
    return AlterShareGroupOffsetsResponse(responses=rows)


async def _set(
    call: Call[AlterShareGroupOffsetsRequest],
    group: str,
    topic: str,
    row: AlterShareGroupOffsetsRequestPartition,
) -> AlterShareGroupOffsetsResponsePartition:
    try:
        await call.services.share_offsets.set(
            group, TopicPartition(topic, row.partition_index), row.start_offset
        )
    except HeadraceError as problem:
        return AlterShareGroupOffsetsResponsePartition(
            row.partition_index, problem.kind.kafka_code, problem.detail
        )
    return AlterShareGroupOffsetsResponsePartition(row.partition_index)
