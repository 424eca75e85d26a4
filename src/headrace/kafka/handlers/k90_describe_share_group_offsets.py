"""Door: DescribeShareGroupOffsets (90). v1: lag (KIP-1226). Without topics: all that the group has begun to read."""

from __future__ import annotations

from headrace.broker.pacing import Pace
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import ZERO_UUID, TopicPartition
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import GROUP, TOPIC, Operation, describe, needs
from headrace.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

KEY = 90
VERSIONS = (0, 1)
RIGHTS = needs(describe(GROUP, "groups[].group_id")).showing(describe(TOPIC))
PARTS = (Parts("groups", "groups"),)


async def handle(call: Call[DescribeShareGroupOffsetsRequest]) -> DescribeShareGroupOffsetsResponse:
    request = call.request
    pace = call.pace()
    return DescribeShareGroupOffsetsResponse(
        groups=[await _group(call, group, pace) async for group in pace.over(request.groups)]
    )


async def _group(
    call: Call[DescribeShareGroupOffsetsRequest], asked: DescribeShareGroupOffsetsRequestGroup, pace: Pace
) -> DescribeShareGroupOffsetsResponseGroup:
    offsets = call.services.share_offsets
    try:
        await offsets.require_group(asked.group_id, empty=False)
    except HeadraceError as problem:
        return DescribeShareGroupOffsetsResponseGroup(
            asked.group_id, [], problem.kind.kafka_code, problem.detail
        )
    image = call.broker.image
    wanted = [(topic.topic_name, topic.partitions) for topic in asked.topics or ()]
    if asked.topics is None:
        known = [(name, image.topic(name)) for name in offsets.topics()]
        wanted = [(name, list(range(len(topic.partitions)))) for name, topic in known if topic is not None]
    rows = []
    for name, numbers in wanted:
        if asked.topics is None and not call.sees(TOPIC, name):
            continue
        if asked.topics is not None and call.refuses(Operation.DESCRIBE, TOPIC, name):
            code = ErrorKind.TOPIC_AUTHORIZATION_FAILED.kafka_code
            denied = [
                DescribeShareGroupOffsetsResponsePartition(number, -1, -1, -1, code) for number in numbers
            ]
            rows.append(DescribeShareGroupOffsetsResponseTopic(name, ZERO_UUID, denied))
            continue
        found = [
            await _partition(call, asked.group_id, TopicPartition(name, number))
            async for number in pace.over(numbers)
        ]
        if asked.topics is None:
            found = [row for row in found if row.start_offset >= 0]
        topic = image.topic(name)
        if found:
            rows.append(DescribeShareGroupOffsetsResponseTopic(name, topic.id if topic else ZERO_UUID, found))
    return DescribeShareGroupOffsetsResponseGroup(asked.group_id, rows)


async def _partition(
    call: Call[DescribeShareGroupOffsetsRequest], group: str, tp: TopicPartition
) -> DescribeShareGroupOffsetsResponsePartition:
    try:
        at = await call.services.share_offsets.find(group, tp)
    except HeadraceError as problem:
        return DescribeShareGroupOffsetsResponsePartition(
            tp.partition, -1, -1, -1, problem.kind.kafka_code, problem.detail
        )
    return DescribeShareGroupOffsetsResponsePartition(tp.partition, at.start_offset, at.leader_epoch, at.lag)
