"""Door: DeleteRecords (21): forget everything below an offset; -1 means up to the high watermark.

Answered when no live replica has them any more, as in Kafka; all partitions of a request share its timeout.
"""

from __future__ import annotations

import asyncio

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import TOPIC, delete, needs
from headrace.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

KEY = 21
VERSIONS = (0, 2)
RIGHTS = needs(delete(TOPIC, "topics[].name"))
PARTS = (Parts("topics", "topics"),)


async def handle(call: Call[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    request = call.request
    pace = call.pace()
    begun = [
        (
            topic.name,
            [
                # All of them wait together, but they are not begun in one turn (A3).
                asyncio.ensure_future(
                    _delete(call, topic.name, entry.partition_index, entry.offset, request.timeout_ms)
                )
                async for entry in pace.over(topic.partitions)
            ],
        )
        async for topic in pace.over(request.topics)
    ]
    return DeleteRecordsResponse(
        topics=[DeleteRecordsTopicResult(name, [await row for row in rows]) for name, rows in begun]
    )


async def _delete(
    call: Call[DeleteRecordsRequest], topic: str, index: int, offset: int, timeout_ms: int
) -> DeleteRecordsPartitionResult:
    partition, error = call.broker.find_partition(topic, index)
    if partition is None:
        return DeleteRecordsPartitionResult(index, -1, error.kafka_code)
    try:
        start = await call.broker.delete_records(partition, offset, timeout_ms)
    except HeadraceError as problem:
        return DeleteRecordsPartitionResult(index, -1, problem.kind.kafka_code)
    return DeleteRecordsPartitionResult(index, start, ErrorKind.NONE)
