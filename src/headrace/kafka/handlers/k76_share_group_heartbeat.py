"""Door: ShareGroupHeartbeat (76): membership of share groups (KIP-932). Partitions are shared, so nobody waits."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MAX_PROTOCOL_METADATA_BYTES
from headrace.groups.share.commands import ShareGroupHeartbeat, ShareHeartbeatResult
from headrace.kafka.call import Call
from headrace.security.rights import GROUP, TOPIC, describe, needs, read
from headrace.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

KEY = 76
VERSIONS = (1, 1)
RIGHTS = needs(read(GROUP, "group_id"), describe(TOPIC, "subscribed_topic_names[]"))


async def handle(call: Call[ShareGroupHeartbeatRequest]) -> ShareGroupHeartbeatResponse:
    request = call.request
    names = request.subscribed_topic_names
    named = sum(len(name) for name in request.subscribed_topic_names or ())
    if named > MAX_PROTOCOL_METADATA_BYTES:
        return ShareGroupHeartbeatResponse(
            error_code=ErrorKind.INVALID_REQUEST.kafka_code,
            error_message=f"the names of a subscription have at most {MAX_PROTOCOL_METADATA_BYTES} bytes; use a pattern",
        )
    try:
        result: ShareHeartbeatResult = await call.services.groups.ask(
            request.group_id,
            ShareGroupHeartbeat(
                request.group_id,
                request.member_id,
                request.member_epoch,
                request.rack_id,
                None if names is None else tuple(names),
                call.client_id,
                f"/{call.client_host}",
            ),
        )
    except HeadraceError as problem:
        return ShareGroupHeartbeatResponse(error_code=problem.kind.kafka_code, error_message=problem.detail)
    assignment = None
    if result.assignment is not None:
        assignment = Assignment(
            [TopicPartitions(topic_id, list(numbers)) for topic_id, numbers in result.assignment]
        )
    return ShareGroupHeartbeatResponse(
        error_code=result.error.kafka_code,
        error_message=None if result.error is ErrorKind.NONE else result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )
