"""Door: FindCoordinator (10). Which broker owns a group (0), a transactional id (1) or a share partition (2).

v1: transactions. v4: many keys at once. v6: share groups. The internal topic is created on first use.
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import GROUP, TRANSACTIONAL_ID, describe, needs
from headrace.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

KEY = 10
VERSIONS = (0, 6)
RIGHTS = needs(
    describe(GROUP, "key", "coordinator_keys[]").when("key_type", 0),
    describe(TRANSACTIONAL_ID, "key", "coordinator_keys[]").when("key_type", 1),
    describe(GROUP, "key", "coordinator_keys[]").when("key_type", 2, until=":"),
)
PARTS = (Parts("coordinator_keys", "coordinators"),)


async def handle(call: Call[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    request = call.request
    keys = request.coordinator_keys if call.version >= 4 else [request.key]
    found = [await _find(call, key, request.key_type) async for key in call.pace().over(keys)]
    if call.version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    one = found[0]
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(call: Call[FindCoordinatorRequest], key: str, key_type: int) -> Coordinator:
    try:
        node = await call.services.coordinators.find(key, key_type)
    except HeadraceError as problem:
        return Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=problem.kind.kafka_code,
            error_message=problem.detail,
        )
    return Coordinator(
        key=key,
        node_id=node.id,
        host=node.host,
        port=node.port,
        error_code=ErrorKind.NONE,
        error_message=None,
    )
