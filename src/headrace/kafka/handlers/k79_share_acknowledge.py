"""Door: ShareAcknowledge (79): accept, release, reject; renew in v2 (KIP-932, KIP-1222). Each partition all or nothing."""

from __future__ import annotations

from headrace.broker.share_sessions import FINAL, OPEN
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.kafka.call import Call
from headrace.kafka.handlers.k78_share_fetch import acknowledgements, find
from headrace.kafka.leader_hints import endpoint, hint_for
from headrace.security.guard import Parts
from headrace.security.rights import GROUP, TOPIC, needs, read
from headrace.wire.messages.share_acknowledge import (
    AcknowledgePartition,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

KEY = 79
VERSIONS = (1, 2)
RIGHTS = needs(read(GROUP, "group_id"), read(TOPIC, "topics[].topic_id"))
PARTS = (Parts("topics", "responses"),)


async def handle(call: Call[ShareAcknowledgeRequest]) -> ShareAcknowledgeResponse:
    request = call.request
    group, member = request.group_id, request.member_id
    groups = call.services.share_groups
    if not group or not member:
        return ShareAcknowledgeResponse(error_code=ErrorKind.INVALID_REQUEST)
    if request.share_session_epoch == OPEN:
        return ShareAcknowledgeResponse(error_code=ErrorKind.INVALID_SHARE_SESSION_EPOCH)
    turn = groups.sessions.begin((group, member), request.share_session_epoch, call.connection_id, (), ())
    if isinstance(turn, ErrorKind):
        return ShareAcknowledgeResponse(error_code=turn.kafka_code)
    topics: list[ShareAcknowledgeTopicResponse] = []
    leaders: set[int] = set()
    pace = call.pace()
    async for topic in pace.over(request.topics):
        rows = [
            await _one(call, group, member, topic.topic_id, part)
            async for part in pace.over(topic.partitions)
        ]
        leaders.update(row.current_leader.leader_id for row in rows)
        topics.append(ShareAcknowledgeTopicResponse(topic.topic_id, rows))
    if request.share_session_epoch == FINAL:
        groups.leave((group, member))
    found = [
        node for leader in sorted(leaders - {-1}) if (node := endpoint(call.broker.image, leader)) is not None
    ]
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=groups.config(group).lock_ms,
        responses=topics,
        node_endpoints=[NodeEndpoint(node.node_id, node.host, node.port, node.rack) for node in found],
    )


async def _one(
    call: Call[ShareAcknowledgeRequest], group: str, member: str, topic_id: bytes, part: AcknowledgePartition
) -> PartitionData:
    row = PartitionData(partition_index=part.partition_index)
    try:
        tp = find(call, (topic_id, part.partition_index))
        batches = acknowledgements(part.acknowledgement_batches)  # type: ignore[arg-type]  # a twin of ShareFetch's
        await call.services.share_groups.acknowledge(group, member, tp, batches)
    except HeadraceError as problem:
        row.error_code, row.error_message = problem.kind.kafka_code, problem.detail
        topic = call.broker.image.topic_by_id(topic_id)
        if topic is not None:
            hint = hint_for(call.broker.image, topic.name, part.partition_index, problem.kind)
            row.current_leader = LeaderIdAndEpoch(hint.leader_id, hint.leader_epoch)
    return row
