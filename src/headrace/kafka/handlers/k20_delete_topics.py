"""Door: DeleteTopics (20). v1 is what kafkajs speaks. v6: by name or by id."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import ZERO_UUID
from headrace.kafka.call import Call
from headrace.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

KEY = 20
VERSIONS = (1, 6)


async def handle(call: Call) -> DeleteTopicsResponse:
    request: DeleteTopicsRequest = call.request
    if call.version < 6:
        return DeleteTopicsResponse(
            responses=[await _delete(call, name, ZERO_UUID) for name in request.topic_names]
        )
    return DeleteTopicsResponse(
        responses=[await _delete(call, entry.name, entry.topic_id) for entry in request.topics]
    )


async def _delete(call: Call, name: str | None, topic_id: bytes) -> DeletableTopicResult:
    if name is None:
        topic = call.broker.image.topic_by_id(topic_id)
        if topic is None:
            return DeletableTopicResult(
                None, topic_id, ErrorKind.UNKNOWN_TOPIC_ID, "there is no topic with this id"
            )
        name = topic.name
    try:
        deleted = await call.broker.topics.delete(name)
    except HeadraceError as problem:
        return DeletableTopicResult(name, topic_id, problem.kind.kafka_code, problem.detail)
    return DeletableTopicResult(name, deleted, ErrorKind.NONE, None)
