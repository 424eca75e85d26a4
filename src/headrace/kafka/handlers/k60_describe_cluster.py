"""Door: DescribeCluster (60). v1: endpoint type (only brokers here). v2: fenced brokers on request."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.kafka.call import Call
from headrace.security.rights import OWN
from headrace.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

KEY = 60
VERSIONS = (0, 2)
RIGHTS = OWN


def handle(call: Call[DescribeClusterRequest]) -> DescribeClusterResponse:
    request = call.request
    image = call.broker.image
    if request.endpoint_type != 1:
        kind = (
            ErrorKind.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == 2
            else ErrorKind.UNSUPPORTED_ENDPOINT_TYPE
        )
        return DescribeClusterResponse(error_code=kind, error_message="only broker endpoints are served here")
    nodes = image.brokers.values() if request.include_fenced_brokers else call.services.client_brokers.now()
    return DescribeClusterResponse(
        cluster_id=call.broker.cluster_id,
        controller_id=-1 if image.controller is None else image.controller.broker_id,
        brokers=[
            DescribeClusterBroker(
                node.id, node.registration.host, node.registration.port, node.rack, not node.live
            )
            for node in sorted(nodes)
        ],
        cluster_authorized_operations=call.cluster_bits(request.include_cluster_authorized_operations),
    )
