"""Codec: Describe Quorum (API key 55)."""

from __future__ import annotations

from headrace.wire.schema import array, int16, int32, int64, message, string, struct, uint16, uuid


@struct
class PartitionData:
    partition_index: int = int32()


@struct
class TopicData:
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


@message(key=55, versions=(0, 2), flexible=0)
class DescribeQuorumRequest:
    topics: list[TopicData] = array(TopicData)


@struct
class ReplicaState:
    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(-1, since=1)
    last_caught_up_timestamp: int = int64(-1, since=1)


@struct
class DescribeQuorumResponsePartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@struct
class DescribeQuorumResponseTopicData:
    topic_name: str = string()
    partitions: list[DescribeQuorumResponsePartitionData] = array(DescribeQuorumResponsePartitionData)


@struct
class Listener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@struct
class Node:
    node_id: int = int32()
    listeners: list[Listener] = array(Listener)


@message(key=55, versions=(0, 2), flexible=0)
class DescribeQuorumResponse:
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2)
    topics: list[DescribeQuorumResponseTopicData] = array(DescribeQuorumResponseTopicData)
    nodes: list[Node] = array(Node, since=2)
