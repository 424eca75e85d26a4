"""Door: LeaveGroup (13). v0-2: one member. v3: a list with an error each, also by instance id (KIP-345)."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.groups.commands import LeaveGroup, LeaveResult, MemberIdentity
from headrace.kafka.call import Call
from headrace.security.rights import GROUP, needs, read
from headrace.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

KEY = 13
VERSIONS = (0, 5)
RIGHTS = needs(read(GROUP, "group_id"))


async def handle(call: Call[LeaveGroupRequest]) -> LeaveGroupResponse:
    request = call.request
    if call.version >= 3:
        members = tuple(
            MemberIdentity(entry.member_id, entry.group_instance_id, entry.reason)
            for entry in request.members
        )
    else:
        members = (MemberIdentity(request.member_id),)
    try:
        result: LeaveResult = await call.services.groups.ask(
            request.group_id, LeaveGroup(request.group_id, members)
        )
    except HeadraceError as problem:
        return LeaveGroupResponse(error_code=problem.kind.kafka_code)
    if call.version < 3:
        error = result.error
        if error is ErrorKind.NONE and result.members:
            error = result.members[0].error
        return LeaveGroupResponse(error_code=error.kafka_code)
    return LeaveGroupResponse(
        error_code=result.error.kafka_code,
        members=[
            MemberResponse(member.member_id, member.instance_id, member.error.kafka_code)
            for member in result.members
        ],
    )
