"""Door: IncrementalAlterConfigs (44): set, delete, append to and subtract from single configs."""

from __future__ import annotations

from headrace.cluster.configs import Alteration, AlterOp
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.kafka.call import Call
from headrace.kafka.config_resources import alter
from headrace.security.guard import Parts
from headrace.security.rights import CLUSTER, GROUP, TOPIC, alter_configs, needs
from headrace.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

KEY = 44
VERSIONS = (0, 1)
RIGHTS = needs(
    alter_configs(TOPIC, "resources[].resource_name").when("resource_type", 2),
    alter_configs(GROUP, "resources[].resource_name").when("resource_type", 32),
    alter_configs(CLUSTER, "resources[].resource_type").when("resource_type", 4),
)
PARTS = (Parts("resources", "responses"),)


async def handle(call: Call[IncrementalAlterConfigsRequest]) -> IncrementalAlterConfigsResponse:
    request, since = call.request, call.services.latest.reads
    return IncrementalAlterConfigsResponse(
        responses=[
            await _alter(call, resource, request.validate_only, since)
            async for resource in call.pace().over(request.resources)
        ]
    )


async def _alter(
    call: Call[IncrementalAlterConfigsRequest], resource: AlterConfigsResource, dry_run: bool, since: int
) -> AlterConfigsResourceResponse:
    kind, message = ErrorKind.NONE, None
    try:
        alterations = [
            Alteration(entry.name, _operation(entry.config_operation), entry.value)
            for entry in resource.configs
        ]
        await alter(
            call.services,
            resource.resource_type,
            resource.resource_name,
            alterations,
            replace=False,
            dry_run=dry_run,
            since=since,
        )
    except HeadraceError as problem:
        kind, message = problem.kind, problem.detail
    return AlterConfigsResourceResponse(
        kind.kafka_code, message, resource.resource_type, resource.resource_name
    )


def _operation(number: int) -> AlterOp:
    try:
        return AlterOp(number)
    except ValueError:
        raise HeadraceError(ErrorKind.INVALID_REQUEST, f"{number} is not a config operation") from None
