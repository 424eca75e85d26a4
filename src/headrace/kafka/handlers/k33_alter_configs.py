"""Door: AlterConfigs (33): replaces all overrides of a resource with those given."""

from __future__ import annotations

from headrace.cluster.configs import Alteration, AlterOp
from headrace.kafka.call import Call
from headrace.kafka.config_resources import ALTERING, altered
from headrace.security.guard import Parts
from headrace.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

KEY = 33
VERSIONS = (0, 2)
RIGHTS = ALTERING
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
    def wanted() -> list[Alteration]:
        return [Alteration(entry.name, AlterOp.SET, entry.value) for entry in resource.configs]

    told = await altered(
        call.services,
        resource.resource_type,
        resource.resource_name,
        wanted,
        replace=True,
        dry_run=dry_run,
        since=since,
    )
    return AlterConfigsResourceResponse(*told)
