"""Door: ListConfigResources (74): what has configs. v0 knows client metrics only, of which there are none; v1: all types.

A group is listed when something was set for it, as in Kafka: every other group has the broker's defaults.
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.kafka.call import Call
from headrace.kafka.config_resources import ResourceType
from headrace.security.rights import CLUSTER, describe_configs, needs
from headrace.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

KEY = 74
VERSIONS = (0, 1)
RIGHTS = needs(describe_configs(CLUSTER))


async def handle(call: Call[ListConfigResourcesRequest]) -> ListConfigResourcesResponse:
    request = call.request
    if call.version == 0:
        return ListConfigResourcesResponse()
    types = set(request.resource_types) or set(ResourceType)
    if not types <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorKind.UNSUPPORTED_VERSION.kafka_code)
    image = call.broker.image
    found = {
        ResourceType.TOPIC: sorted(image.topics),
        ResourceType.BROKER: [str(number) for number in sorted(image.brokers)],
        ResourceType.GROUP: sorted(image.configured_groups()),
    }
    pace = call.pace()
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(name, kind)
            for kind, names in found.items()
            if kind in types
            async for name in pace.over(names)
        ]
    )
