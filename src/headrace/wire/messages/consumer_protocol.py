"""Codec: what classic consumers put into JoinGroup metadata and SyncGroup assignments.

Each travels behind its own int16 version; a broker reads it only when the protocol type is "consumer".
"""

from __future__ import annotations

from headrace.wire.schema import array, int32, message, octets, string, struct


@struct
class TopicPartition:
    topic: str = string()
    partitions: list[int] = array(int32)


@message(key=-1, versions=(0, 3))
class ConsumerProtocolSubscription:
    topics: list[str] = array(string)
    user_data: bytes | None = octets(None, nullable=0)
    owned_partitions: list[TopicPartition] = array(TopicPartition, since=1)
    generation_id: int = int32(-1, since=2)
    rack_id: str | None = string(None, since=3, nullable=3)


@message(key=-1, versions=(0, 3))
class ConsumerProtocolAssignment:
    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = octets(None, nullable=0)
