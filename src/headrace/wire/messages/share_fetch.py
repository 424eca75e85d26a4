"""Codec: Share Fetch (API key 78).

Queue-like reading (KIP-932), acknowledgements ride along. v2: renew, acquire modes.
"""

from __future__ import annotations

from headrace.core.ports import Buffer
from headrace.wire.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    record_data,
    string,
    struct,
    uuid,
)


@struct
class AcknowledgementBatch:
    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8)


@struct
class FetchPartition:
    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@struct
class FetchTopic:
    topic_id: bytes = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


@struct
class ForgottenTopic:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(key=78, versions=(1, 2), flexible=1)
class ShareFetchRequest:
    group_id: str | None = string(None, nullable=0)
    member_id: str | None = string(nullable=0)
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(2**31 - 1)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8(since=2)
    is_renew_ack: bool = boolean(since=2)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


@struct
class LeaderIdAndEpoch:
    leader_id: int = int32(-1)
    leader_epoch: int = int32(-1)


@struct
class AcquiredRecords:
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


@struct
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(None, nullable=0)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(None, nullable=0)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch)
    records: Buffer | None = record_data(nullable=0)
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


@struct
class ShareFetchableTopicResponse:
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@struct
class NodeEndpoint:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(None, nullable=0)


@message(key=78, versions=(1, 2), flexible=1)
class ShareFetchResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(None, nullable=0)
    acquisition_lock_timeout_ms: int = int32()
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
