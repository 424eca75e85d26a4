"""Door: DescribeConfigs (32): every config with its default, source, synonyms and words. v3: type and documentation."""

from __future__ import annotations

from headrace.cluster.configs import ConfigEntry, describe_broker, describe_topic
from headrace.cluster.group_configs import describe_group
from headrace.core.errors import ErrorKind
from headrace.kafka.call import Call
from headrace.kafka.config_resources import ResourceType, broker_of
from headrace.security.guard import Parts
from headrace.security.rights import CLUSTER, GROUP, TOPIC, describe_configs, needs
from headrace.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

KEY = 32
VERSIONS = (1, 4)
RIGHTS = needs(
    describe_configs(TOPIC, "resources[].resource_name").when("resource_type", 2),
    describe_configs(GROUP, "resources[].resource_name").when("resource_type", 32),
    describe_configs(CLUSTER, "resources[].resource_type").when("resource_type", 4),
)
PARTS = (Parts("resources", "results"),)


async def handle(call: Call[DescribeConfigsRequest]) -> DescribeConfigsResponse:
    request = call.request
    # Each resource once, as clients ask: the answer must not grow with how often a name is repeated (A3).
    resources = {(entry.resource_type, entry.resource_name): entry for entry in request.resources}
    pace = call.pace()
    return DescribeConfigsResponse(
        results=[_describe(call, resource) async for resource in pace.over(resources.values())]
    )


def _describe(call: Call[DescribeConfigsRequest], resource: DescribeConfigsResource) -> DescribeConfigsResult:
    image = call.broker.image
    names = resource.configuration_keys
    if resource.resource_type == ResourceType.TOPIC:
        topic = image.topic(resource.resource_name)
        if topic is None:
            return _failed(resource, ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
        return _result(call, resource, describe_topic(topic.configs, image.layers(), names))
    if resource.resource_type == ResourceType.BROKER:
        broker_id = broker_of(call.broker.image, resource.resource_name)
        if broker_id is ErrorKind.INVALID_REQUEST:
            return _failed(
                resource, ErrorKind.INVALID_REQUEST, f"there is no broker {resource.resource_name!r}"
            )
        return _result(call, resource, describe_broker(image.layers(broker_id), names))
    if resource.resource_type == ResourceType.GROUP:
        set_here = image.group_configs(resource.resource_name)
        return _result(call, resource, describe_group(set_here, image.layers(), names))
    return _failed(resource, ErrorKind.INVALID_REQUEST, "only topics, brokers and groups have configs here")


def _result(
    call: Call[DescribeConfigsRequest], resource: DescribeConfigsResource, entries: list[ConfigEntry]
) -> DescribeConfigsResult:
    request = call.request
    return DescribeConfigsResult(
        ErrorKind.NONE,
        None,
        resource.resource_type,
        resource.resource_name,
        [
            DescribeConfigsResourceResult(
                entry.name,
                entry.value,
                entry.read_only,
                entry.source,
                entry.sensitive,
                [DescribeConfigsSynonym(*synonym) for synonym in entry.synonyms]
                if request.include_synonyms
                else [],
                entry.type,
                entry.documentation if request.include_documentation else None,
            )
            for entry in entries
        ],
    )


def _failed(resource: DescribeConfigsResource, kind: ErrorKind, message: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(kind.kafka_code, message, resource.resource_type, resource.resource_name, [])
