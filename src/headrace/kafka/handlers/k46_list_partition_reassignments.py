"""Door: ListPartitionReassignments (46, KIP-455): the moves under way, all of them or those of named partitions."""

from __future__ import annotations

from headrace.kafka.call import Call
from headrace.security.rights import CLUSTER, describe, needs
from headrace.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

KEY = 46
VERSIONS = (0, 0)
RIGHTS = needs(describe(CLUSTER))


async def handle(call: Call[ListPartitionReassignmentsRequest]) -> ListPartitionReassignmentsResponse:
    request = call.request
    wanted = None
    if request.topics is not None:
        wanted = {(topic.name, number) for topic in request.topics for number in topic.partition_indexes}
    topics: dict[str, OngoingTopicReassignment] = {}
    async for name, number, state in call.pace().over(list(call.services.partition_admin.moves())):
        if wanted is None or (name, number) in wanted:
            topic = topics.setdefault(name, OngoingTopicReassignment(name, []))
            topic.partitions.append(
                OngoingPartitionReassignment(
                    number, list(state.replicas), list(state.adding), list(state.removing)
                )
            )
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))
