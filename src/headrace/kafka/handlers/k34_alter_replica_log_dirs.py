"""Door: AlterReplicaLogDirs (34). A broker has one log directory, so a replica can only be told to stay where it is (F37)."""

from __future__ import annotations

import os

from headrace.core.errors import ErrorKind
from headrace.kafka.call import Call
from headrace.security.rights import CLUSTER, alter, needs
from headrace.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

KEY = 34
VERSIONS = (1, 2)
RIGHTS = needs(alter(CLUSTER))


async def handle(call: Call[AlterReplicaLogDirsRequest]) -> AlterReplicaLogDirsResponse:
    request = call.request
    pace = call.pace()
    topics: dict[str, dict[int, ErrorKind]] = {}
    async for wanted in pace.over(request.dirs):
        async for topic in pace.over(wanted.topics):
            rows = topics.setdefault(topic.name, {})
            async for number in pace.over(topic.partitions):
                rows[number] = _placed(call, wanted.path, topic.name, number)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                name,
                [
                    AlterReplicaLogDirPartitionResult(number, error.kafka_code)
                    async for number, error in pace.over(rows.items())
                ],
            )
            async for name, rows in pace.over(topics.items())
        ]
    )


def _placed(call: Call[AlterReplicaLogDirsRequest], path: str, topic: str, number: int) -> ErrorKind:
    if os.path.normpath(path) != os.path.normpath(call.broker.shown_log_dir):
        return ErrorKind.LOG_DIR_NOT_FOUND
    if call.broker.image.partition(topic, number) is None:
        return ErrorKind.UNKNOWN_TOPIC_OR_PARTITION
    here = (topic, number) in call.broker.partitions
    return ErrorKind.NONE if here else ErrorKind.REPLICA_NOT_AVAILABLE
