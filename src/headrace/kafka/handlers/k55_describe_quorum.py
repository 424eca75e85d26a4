"""Door: DescribeQuorum (55): what tools that know KRaft ask for. Metadata lives in the coordinator here, so the answer
names the controller as the leader and every registered broker as a voter that has seen what we have seen. A broker that has not
heard of the coordinator for a while says so with an error; what else is wrong with it is in the message (`cluster status` asks).
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.kafka.call import Call
from headrace.security.rights import CLUSTER, describe, needs
from headrace.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)

KEY = 55
VERSIONS = (0, 2)
RIGHTS = needs(describe(CLUSTER))

METADATA_TOPIC = "__cluster_metadata"


async def handle(call: Call[DescribeQuorumRequest]) -> DescribeQuorumResponse:
    request = call.request
    image = call.broker.image
    if any(
        topic.topic_name != METADATA_TOPIC or any(entry.partition_index for entry in topic.partitions)
        for topic in request.topics
    ):
        return DescribeQuorumResponse(error_code=ErrorKind.INVALID_REQUEST)
    controller, revision = image.controller, image.revision
    wall_ms = call.broker.runtime.clock.wall_ms()
    voters = [
        ReplicaState(node, ZERO_UUID, revision, wall_ms, wall_ms if image.is_live(node) else -1)
        for node in sorted(image.brokers)
    ]
    partition = DescribeQuorumResponsePartitionData(
        0,
        ErrorKind.NONE if controller is not None else ErrorKind.LEADER_NOT_AVAILABLE,
        None,
        -1 if controller is None else controller.broker_id,
        -1 if controller is None else min(controller.epoch, 2**31 - 1),
        revision,
        voters,
        [],
    )
    nodes = [
        Node(node.id, [Listener("CONTROLLER", node.registration.host, node.registration.port)])
        for node in sorted(image.brokers.values())
    ]
    troubles = call.services.troubles()
    is_alone = any(trouble.startswith("coordinator: ") for trouble in troubles)
    return DescribeQuorumResponse(
        error_code=ErrorKind.BROKER_NOT_AVAILABLE if is_alone else ErrorKind.NONE,
        error_message="; ".join(troubles) or None,
        topics=[DescribeQuorumResponseTopicData(METADATA_TOPIC, [partition])],
        nodes=nodes,
    )
