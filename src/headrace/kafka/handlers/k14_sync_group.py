"""Door: SyncGroup (14). The leader hands in the assignment, everybody gets theirs. v3: static. v5: protocol echoed."""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.groups.commands import SyncGroup, SyncResult
from headrace.kafka.call import Call
from headrace.security.rights import GROUP, needs, read
from headrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

KEY = 14
VERSIONS = (0, 5)
RIGHTS = needs(read(GROUP, "group_id"))


async def handle(call: Call[SyncGroupRequest]) -> SyncGroupResponse:
    request = call.request
    assignments = tuple((entry.member_id, bytes(entry.assignment)) for entry in request.assignments)
    try:
        result: SyncResult = await call.services.groups.ask(
            request.group_id,
            SyncGroup(
                request.group_id,
                request.member_id,
                request.generation_id,
                assignments,
                request.group_instance_id,
                request.protocol_type,
                request.protocol_name,
            ),
        )
    except HeadraceError as problem:
        result = SyncResult(problem.kind)
    return SyncGroupResponse(
        error_code=result.error.kafka_code,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
