"""Door: AlterPartitionReassignments (45, KIP-455): start, redirect or (replicas = null) cancel moves of partitions.

The answer says that a move has begun; ListPartitionReassignments says when it is over. v1: a caller may
ask that no move changes the number of replicas (KIP-860).
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.kafka.call import Call
from headrace.security.rights import CLUSTER, alter, needs
from headrace.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

KEY = 45
VERSIONS = (0, 1)
RIGHTS = needs(alter(CLUSTER))


async def handle(call: Call[AlterPartitionReassignmentsRequest]) -> AlterPartitionReassignmentsResponse:
    request = call.request
    pace = call.pace()
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                topic.name,
                [await _alter(call, topic.name, entry) async for entry in pace.over(topic.partitions)],
            )
            async for topic in pace.over(request.topics)
        ],
    )


async def _alter(
    call: Call[AlterPartitionReassignmentsRequest], topic: str, entry: ReassignablePartition
) -> ReassignablePartitionResponse:
    number, admin = entry.partition_index, call.services.partition_admin
    try:
        if entry.replicas is None:
            await admin.cancel_move(topic, number)
        else:
            may_change = call.request.allow_replication_factor_change
            await admin.move(topic, number, tuple(entry.replicas), keep_count=not may_change)
    except HeadraceError as problem:
        return ReassignablePartitionResponse(number, problem.kind.kafka_code, problem.detail)
    return ReassignablePartitionResponse(number, ErrorKind.NONE, None)
