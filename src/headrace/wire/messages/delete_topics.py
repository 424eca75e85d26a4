"""Codec: Delete Topics (API key 20)."""

from __future__ import annotations

from headrace.wire.schema import array, int16, int32, message, string, struct, uuid


@struct
class DeleteTopicState:
    name: str | None = string(None, nullable=0)
    topic_id: bytes = uuid()


@message(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(string, until=5)
    timeout_ms: int = int32()


@struct
class DeletableTopicResult:
    name: str | None = string(nullable=6)
    topic_id: bytes = uuid(since=6)
    error_code: int = int16()
    error_message: str | None = string(None, since=5, nullable=5)


@message(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsResponse:
    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
