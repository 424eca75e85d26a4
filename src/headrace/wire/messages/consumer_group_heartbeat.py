"""Codec: Consumer Group Heartbeat (API key 68): membership in groups whose assignment the broker makes (KIP-848).

A null assignment means unchanged, an empty one means nothing; v1: regex subscription, client-made member id.
"""

from __future__ import annotations

from headrace.wire.schema import array, int16, int32, message, nested, string, struct, uuid


@struct
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest:
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(None, nullable=0)
    rack_id: str | None = string(None, nullable=0)
    rebalance_timeout_ms: int = int32(-1)
    subscribed_topic_names: list[str] | None = array(string, None, nullable=0)
    subscribed_topic_regex: str | None = string(None, since=1, nullable=1)
    server_assignor: str | None = string(None, nullable=0)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, None, nullable=0)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(None, nullable=0)
    member_id: str | None = string(None, nullable=0)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nested(Assignment, None, nullable=0)
