"""Door: ElectLeaders (43). v0: preferred only. v1: unclean (KIP-460). No topics named: every partition that needs it."""

from __future__ import annotations

from headrace.cluster.election import ElectionType
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.kafka.call import Call
from headrace.security.rights import CLUSTER, alter, needs
from headrace.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

KEY = 43
VERSIONS = (0, 2)
RIGHTS = needs(alter(CLUSTER))


async def handle(call: Call[ElectLeadersRequest]) -> ElectLeadersResponse:
    request = call.request
    try:
        election = ElectionType(request.election_type)
    except ValueError:
        return ElectLeadersResponse(error_code=ErrorKind.INVALID_REQUEST)
    results = []
    pace = call.pace()
    async for topic, numbers, named in pace.over(_asked(call, request)):
        rows = []
        async for number in pace.over(numbers):
            row = await _elect(call, topic, number, election)
            # Who asks for everything wants to hear only of what was, or could not be, done.
            if named or row.error_code != ErrorKind.ELECTION_NOT_NEEDED:
                rows.append(row)
        if rows:
            results.append(ReplicaElectionResult(topic, rows))
    return ElectLeadersResponse(replica_election_results=results)


def _asked(
    call: Call[ElectLeadersRequest], request: ElectLeadersRequest
) -> list[tuple[str, list[int], bool]]:
    if request.topic_partitions is not None:
        return [(entry.topic, entry.partitions, True) for entry in request.topic_partitions]
    return [
        (topic.name, list(range(len(topic.partitions))), False)
        for topic in call.broker.image.topics.values()
        if topic.view is None
    ]


async def _elect(
    call: Call[ElectLeadersRequest], topic: str, number: int, election: ElectionType
) -> PartitionResult:
    try:
        await call.services.partition_admin.elect(topic, number, election)
    except HeadraceError as problem:
        return PartitionResult(number, problem.kind.kafka_code, problem.detail)
    return PartitionResult(number, ErrorKind.NONE, None)
