"""Door: IncrementalAlterConfigs (44): set, delete, append to and subtract from single configs."""

from __future__ import annotations

from headrace.cluster.configs import Alteration, AlterOp
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.kafka.call import Call
from headrace.kafka.config_resources import ALTERING, altered
from headrace.security.guard import Parts
from headrace.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

KEY = 44
VERSIONS = (0, 1)
RIGHTS = ALTERING
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
    def wanted() -> list[Alteration]:
        return [
            Alteration(entry.name, _operation(entry.config_operation), entry.value)
            for entry in resource.configs
        ]

    told = await altered(
        call.services,
        resource.resource_type,
        resource.resource_name,
        wanted,
        replace=False,
        dry_run=dry_run,
        since=since,
    )
    return AlterConfigsResourceResponse(*told)


def _operation(number: int) -> AlterOp:
    try:
        return AlterOp(number)
    except ValueError:
        raise HeadraceError(ErrorKind.INVALID_REQUEST, f"{number} is not a config operation") from None
