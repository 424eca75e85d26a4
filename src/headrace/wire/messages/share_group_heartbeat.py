"""Codec: Share Group Heartbeat (API key 76)."""

from __future__ import annotations

from headrace.wire.schema import array, int16, int32, message, nested, string, struct, uuid


@message(key=76, versions=(1, 1), flexible=1)
class ShareGroupHeartbeatRequest:
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(None, nullable=0)
    subscribed_topic_names: list[str] | None = array(string, None, nullable=0)


@struct
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(key=76, versions=(1, 1), flexible=1)
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(None, nullable=0)
    member_id: str | None = string(None, nullable=0)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nested(Assignment, None, nullable=0)
