"""Door: DeleteTopics (20). v1 is what kafkajs speaks. v6: by name or by id."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import ZERO_UUID
from headrace.core.limits import MAX_NAMES_DESCRIBED
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import TOPIC, delete, needs
from headrace.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

KEY = 20
VERSIONS = (1, 6)
RIGHTS = needs(delete(TOPIC, "topics[].name", "topics[].topic_id", "topic_names[]"))
PARTS = (Parts("topics", "responses"), Parts("topic_names", "responses"))


async def handle(call: Call[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    request = call.request
    wanted: list[tuple[str | None, bytes]]
    if call.version < 6:
        wanted = [(name, ZERO_UUID) for name in dict.fromkeys(request.topic_names)]
    else:
        wanted = list(dict.fromkeys((entry.name, entry.topic_id) for entry in request.topics))
    if len(wanted) > MAX_NAMES_DESCRIBED:
        message = f"more than {MAX_NAMES_DESCRIBED} topics in one request; ask in several"
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name, topic_id, ErrorKind.INVALID_REQUEST, message)
                for name, topic_id in wanted
            ]
        )
    since = call.services.latest.reads
    return DeleteTopicsResponse(
        responses=[
            await _delete(call, name, topic_id, since) async for name, topic_id in call.pace().over(wanted)
        ]
    )


async def _delete(
    call: Call[DeleteTopicsRequest], name: str | None, topic_id: bytes, since: int
) -> DeletableTopicResult:
    if name is None:
        topic = call.broker.image.topic_by_id(topic_id)
        if topic is None:
            return DeletableTopicResult(
                None, topic_id, ErrorKind.UNKNOWN_TOPIC_ID, "there is no topic with this id"
            )
        name = topic.name
    try:
        deleted = await call.services.topics.delete(name, since=since)
    except HeadraceError as problem:
        return DeletableTopicResult(name, topic_id, problem.kind.kafka_code, problem.detail)
    return DeletableTopicResult(name, deleted, ErrorKind.NONE, None)
