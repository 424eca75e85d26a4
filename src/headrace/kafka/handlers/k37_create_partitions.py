"""Door: CreatePartitions (37). Partitions only grow; one entry per topic comes back."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import TOPIC, alter, needs
from headrace.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

KEY = 37
VERSIONS = (0, 3)
RIGHTS = needs(alter(TOPIC, "topics[].name"))
PARTS = (Parts("topics", "results"),)


async def handle(call: Call[CreatePartitionsRequest]) -> CreatePartitionsResponse:
    request, since = call.request, call.services.latest.reads
    return CreatePartitionsResponse(
        results=[
            await _grow(call, topic, request.validate_only, since)
            async for topic in call.pace().over(request.topics)
        ]
    )


async def _grow(
    call: Call[CreatePartitionsRequest], topic: CreatePartitionsTopic, validate_only: bool, since: int
) -> CreatePartitionsTopicResult:
    assignments = None
    if topic.assignments is not None:
        assignments = [tuple(entry.broker_ids) for entry in topic.assignments]
    try:
        await call.services.topics.grow(
            topic.name, topic.count, assignments, validate_only=validate_only, since=since
        )
    except HeadraceError as problem:
        return CreatePartitionsTopicResult(topic.name, problem.kind.kafka_code, problem.detail)
    return CreatePartitionsTopicResult(topic.name, ErrorKind.NONE, None)
