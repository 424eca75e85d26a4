"""Door: AlterConfigs (33): replaces all overrides of a resource with those given."""

from __future__ import annotations

from headrace.cluster.configs import Alteration, AlterOp
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.kafka.call import Call
from headrace.kafka.config_resources import alter
from headrace.security.guard import Parts
from headrace.security.rights import CLUSTER, GROUP, TOPIC, alter_configs, needs
from headrace.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

KEY = 33
VERSIONS = (0, 2)
RIGHTS = needs(
    alter_configs(TOPIC, "resources[].resource_name").when("resource_type", 2),
    alter_configs(GROUP, "resources[].resource_name").when("resource_type", 32),
    alter_configs(CLUSTER, "resources[].resource_type").when("resource_type", 4),
)
PARTS = (Parts("resources", "responses"),)


async def handle(call: Call[AlterConfigsRequest]) -> AlterConfigsResponse:
    request, since = call.request, call.services.latest.reads
    return AlterConfigsResponse(
        responses=[
            await _alter(call, resource, request.validate_only, since)
            async for resource in call.pace().over(request.resources)
        ]
    )


async def _alter(
    call: Call[AlterConfigsRequest], resource: AlterConfigsResource, dry_run: bool, since: int
) -> AlterConfigsResourceResponse:
    alterations = [Alteration(entry.name, AlterOp.SET, entry.value) for entry in resource.configs]
    kind, message = ErrorKind.NONE, None
    try:
        await alter(
            call.services,
            resource.resource_type,
            resource.resource_name,
            alterations,
            replace=True,
            dry_run=dry_run,
            since=since,
        )
    except HeadraceError as problem:
        kind, message = problem.kind, problem.detail
    return AlterConfigsResourceResponse(
        kind.kafka_code, message, resource.resource_type, resource.resource_name
    )
