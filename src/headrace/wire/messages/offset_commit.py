"""Codec: Offset Commit (API key 8): v7: static member. v9: member epoch (KIP-848). v10: topic ids."""

from __future__ import annotations

from headrace.wire.schema import array, int16, int32, int64, message, string, struct, uuid


@struct
class OffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(-1, since=6)
    committed_metadata: str | None = string(nullable=0)


@struct
class OffsetCommitRequestTopic:
    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message(key=8, versions=(2, 10), flexible=8)
class OffsetCommitRequest:
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(-1)
    member_id: str = string()
    group_instance_id: str | None = string(None, since=7, nullable=7)
    retention_time_ms: int = int64(-1, until=4)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@struct
class OffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class OffsetCommitResponseTopic:
    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message(key=8, versions=(2, 10), flexible=8)
class OffsetCommitResponse:
    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
