"""Door: DescribeLogDirs (35): how large each partition is on this broker, and how much room is left (v4).

v5: whether a directory takes no new replicas (KIP-1066): a broker has one, and it always does."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.kafka.call import Call
from headrace.security.rights import CLUSTER, describe, needs
from headrace.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

KEY = 35
VERSIONS = (1, 5)
RIGHTS = needs(describe(CLUSTER))


async def handle(call: Call[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    request = call.request
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    async for (name, index), partition in call.pace().over(list(call.broker.partitions.items())):
        if wanted is None or (name, index) in wanted:
            lag = max(0, partition.high_watermark - partition.log.end_offset)
            row = DescribeLogDirsPartition(index, partition.log.size_bytes, lag, False)
            topics.setdefault(name, []).append(row)
    total, usable = call.broker.disk_space()
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                ErrorKind.KAFKA_STORAGE_ERROR if call.broker.flusher.failure else ErrorKind.NONE,
                call.broker.shown_log_dir,
                [DescribeLogDirsTopic(name, rows) for name, rows in topics.items()],
                total,
                usable,
            )
        ]
    )
