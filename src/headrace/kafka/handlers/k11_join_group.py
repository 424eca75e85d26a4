"""Door: JoinGroup (11), classic groups. The answer may come minutes later, when the group has gathered.

v1: rebalance timeout. v4: MEMBER_ID_REQUIRED (KIP-394). v5: static members (KIP-345). v7: protocol type in the answer.
v9: skip_assignment (KIP-814).
"""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.groups.commands import JoinGroup, JoinResult, Protocol
from headrace.kafka.call import Call
from headrace.security.rights import GROUP, needs, read
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

KEY = 11
VERSIONS = (0, 9)
RIGHTS = needs(read(GROUP, "group_id"))


async def handle(call: Call[JoinGroupRequest]) -> JoinGroupResponse:
    request = call.request
    name = request.group_instance_id or call.client_id
    new_member_id = f"{name}-{call.broker.new_uuid()}"
    protocols = tuple(Protocol(entry.name, bytes(entry.metadata)) for entry in request.protocols)
    try:
        result: JoinResult = await call.services.groups.ask(
            request.group_id,
            JoinGroup(
                group_id=request.group_id,
                member_id=request.member_id,
                new_member_id=new_member_id,
                protocol_type=request.protocol_type,
                protocols=protocols,
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=(
                    request.rebalance_timeout_ms if call.version >= 1 else request.session_timeout_ms
                ),
                client_id=call.client_id,
                client_host=f"/{call.client_host}",
                instance_id=request.group_instance_id,
                member_id_required=call.version >= 4,
                supports_skip_assignment=call.version >= 9,
                reason=request.reason,
            ),
        )
    except HeadraceError as problem:
        result = JoinResult(problem.kind, member_id=request.member_id)
    nameless = None if call.version >= 7 else ""
    return JoinGroupResponse(
        error_code=result.error.kafka_code,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=nameless if result.protocol_name is None else result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(member.member_id, member.instance_id, member.metadata)
            for member in result.members
        ],
    )
