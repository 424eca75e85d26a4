"""Door: DeleteGroups (42)."""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.groups import commands
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import GROUP, delete, needs
from headrace.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

KEY = 42
VERSIONS = (0, 2)
RIGHTS = needs(delete(GROUP, "groups_names[]"))
PARTS = (Parts("groups_names", "results"),)


async def handle(call: Call[DeleteGroupsRequest]) -> DeleteGroupsResponse:
    request = call.request
    pace = call.pace()
    return DeleteGroupsResponse(
        results=[await _delete(call, group_id) async for group_id in pace.over(request.groups_names)]
    )


async def _delete(call: Call[DeleteGroupsRequest], group_id: str) -> DeletableGroupResult:
    try:
        (result,) = await call.services.groups.ask(group_id, commands.DeleteGroups((group_id,)))
    except HeadraceError as problem:
        return DeletableGroupResult(group_id, problem.kind.kafka_code)
    return DeletableGroupResult(group_id, result.error.kafka_code)
