"""Door: Heartbeat (12), classic groups. v3: static members."""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.groups.commands import Heartbeat
from headrace.kafka.call import Call
from headrace.security.rights import GROUP, needs, read
from headrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

KEY = 12
VERSIONS = (0, 4)
RIGHTS = needs(read(GROUP, "group_id"))


async def handle(call: Call[HeartbeatRequest]) -> HeartbeatResponse:
    request = call.request
    try:
        result = await call.services.groups.ask(
            request.group_id,
            Heartbeat(request.group_id, request.member_id, request.generation_id, request.group_instance_id),
        )
    except HeadraceError as problem:
        return HeartbeatResponse(error_code=problem.kind.kafka_code)
    return HeartbeatResponse(error_code=result.error.kafka_code)
