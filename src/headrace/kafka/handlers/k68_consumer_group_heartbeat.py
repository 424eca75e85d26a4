"""Door: ConsumerGroupHeartbeat (68): the broker assigns, members reconcile (KIP-848). v1: patterns, client-made ids."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MAX_PROTOCOL_METADATA_BYTES
from headrace.groups.consumer.commands import ConsumerGroupHeartbeat
from headrace.kafka.call import Call
from headrace.security.rights import GROUP, TOPIC, describe, needs, read
from headrace.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

KEY = 68
VERSIONS = (0, 1)
RIGHTS = needs(read(GROUP, "group_id"), describe(TOPIC, "subscribed_topic_names[]")).showing(describe(TOPIC))


async def handle(call: Call[ConsumerGroupHeartbeatRequest]) -> ConsumerGroupHeartbeatResponse:
    request = call.request
    named = sum(len(name) for name in request.subscribed_topic_names or ())
    if named > MAX_PROTOCOL_METADATA_BYTES:
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorKind.INVALID_REQUEST.kafka_code,
            error_message=f"the names of a subscription have at most {MAX_PROTOCOL_METADATA_BYTES} bytes; use a pattern",
        )
    try:
        result = await call.services.groups.ask(request.group_id, _command(call))
    except HeadraceError as problem:
        return ConsumerGroupHeartbeatResponse(
            error_code=problem.kind.kafka_code, error_message=problem.detail
        )
    assignment = None
    if result.assignment is not None:
        assignment = Assignment(
            [TopicPartitions(topic_id, list(numbers)) for topic_id, numbers in result.assignment]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error.kafka_code,
        error_message=None if result.error is ErrorKind.NONE else result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )


def _command(call: Call[ConsumerGroupHeartbeatRequest]) -> ConsumerGroupHeartbeat:
    request = call.request
    owned = None
    if request.topic_partitions is not None:
        owned = tuple((entry.topic_id, tuple(entry.partitions)) for entry in request.topic_partitions)
    names = request.subscribed_topic_names
    return ConsumerGroupHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        new_member_id=call.broker.new_uuid(),
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if names is None else tuple(names),
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        reader="" if call.session.access is None else str(call.session.access.principal),
        owned=owned,
        client_id=call.client_id,
        client_host=f"/{call.client_host}",
        member_id_required=call.version >= 1,
    )
