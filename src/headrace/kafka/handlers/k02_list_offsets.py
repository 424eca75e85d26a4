"""Door: ListOffsets (2): where a time, the start or the end lies.

-1 latest (the last stable offset for read_committed), -2 earliest, -3 offset of the newest timestamp (v7), -4 earliest
local (v8: as -2, nothing is tiered), -5 latest tiered (v9) and -6 earliest to be tiered (v11): unknown, nothing is. By time: the first offset whose
timestamp is not older, exactly, with the epoch of that record.
"""

from __future__ import annotations

from headrace.broker.partition import Partition
from headrace.core.errors import ErrorKind
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import TOPIC, describe, needs
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

KEY = 2
VERSIONS = (1, 11)
RIGHTS = needs(describe(TOPIC, "topics[].name"))
PARTS = (Parts("topics", "topics"),)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4


async def handle(call: Call[ListOffsetsRequest]) -> ListOffsetsResponse:
    request = call.request
    refused = call.broker.introductions.replica_refusal(call.session.principal, request.replica_id)
    if refused is not None:
        return _refusal(request, refused)
    pace = call.pace()
    for topic in request.topics:
        async for entry in pace.over(topic.partitions):
            partition, _ = call.broker.find_readable(topic.name, entry.partition_index)
            if partition is not None:
                await partition.settle_own_writes()
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [_find(call, topic.name, entry) async for entry in pace.over(topic.partitions)],
            )
            async for topic in pace.over(request.topics)
        ]
    )


def _refusal(request: ListOffsetsRequest, kind: ErrorKind) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [
                    ListOffsetsPartitionResponse(entry.partition_index, kind.kafka_code)
                    for entry in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _find(
    call: Call[ListOffsetsRequest], topic: str, entry: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    index = entry.partition_index
    partition, error = call.broker.find_readable(topic, index)
    if partition is None:
        return ListOffsetsPartitionResponse(index, error.kafka_code)
    error = partition.reader_refusal(entry.current_leader_epoch)
    if error is ErrorKind.OFFSET_NOT_AVAILABLE and call.version < 5:
        error = ErrorKind.LEADER_NOT_AVAILABLE
    if error is not ErrorKind.NONE:
        return ListOffsetsPartitionResponse(index, error.kafka_code)
    stable = call.version >= 2 and call.request.isolation_level == 1
    return _position(partition, index, entry.timestamp, stable)


def _position(partition: Partition, index: int, timestamp: int, stable: bool) -> ListOffsetsPartitionResponse:
    log = partition.log
    upto = partition.last_stable_offset if stable else partition.high_watermark
    if timestamp == LATEST:
        return ListOffsetsPartitionResponse(index, 0, -1, upto, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.epochs.epoch_at(log.start_offset)
        return ListOffsetsPartitionResponse(index, 0, -1, log.start_offset, -1 if epoch is None else epoch)
    if timestamp == MAX_TIMESTAMP:
        found = log.max_timestamp_offset(upto)
    elif timestamp < 0:
        found = None
    else:
        found = log.offset_for_time(timestamp, upto)
    if found is None:
        return ListOffsetsPartitionResponse(index, 0, -1, -1)
    return ListOffsetsPartitionResponse(index, 0, found.timestamp, found.offset, found.leader_epoch)
