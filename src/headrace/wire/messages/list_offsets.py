"""Codec: List Offsets (API key 2).

v2: isolation. v4: leader epochs. v7: max timestamp. v8, v9, v11: tiered storage. v10: timeout.
"""

from __future__ import annotations

from headrace.wire.schema import array, int8, int16, int32, int64, message, string, struct


@struct
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32(-1, since=4)
    timestamp: int = int64()


@struct
class ListOffsetsTopic:
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message(key=2, versions=(1, 11), flexible=6)
class ListOffsetsRequest:
    replica_id: int = int32(-1)
    isolation_level: int = int8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10)


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(-1)
    offset: int = int64(-1)
    leader_epoch: int = int32(-1, since=4)


@struct
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message(key=2, versions=(1, 11), flexible=6)
class ListOffsetsResponse:
    throttle_time_ms: int = int32(since=2)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
