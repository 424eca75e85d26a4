"""Door: OffsetForLeaderEpoch (23): where an epoch ended, so that a reader can tell truncated data. librdkafka: v2."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import TOPIC, describe, needs
from headrace.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

KEY = 23
VERSIONS = (2, 4)
RIGHTS = needs(describe(TOPIC, "topics[].topic"))
PARTS = (Parts("topics", "topics"),)


async def handle(call: Call[OffsetForLeaderEpochRequest]) -> OffsetForLeaderEpochResponse:
    request = call.request
    refused = call.broker.introductions.replica_refusal(call.session.principal, request.replica_id)
    pace = call.pace()
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic,
                [_find(call, topic.topic, entry, refused) async for entry in pace.over(topic.partitions)],
            )
            async for topic in pace.over(request.topics)
        ]
    )


def _find(
    call: Call[OffsetForLeaderEpochRequest],
    topic: str,
    entry: OffsetForLeaderPartition,
    refused: ErrorKind | None,
) -> EpochEndOffset:
    if refused is not None:
        return EpochEndOffset(refused.kafka_code, entry.partition)
    partition, error = call.broker.find_readable(topic, entry.partition)
    if partition is not None:
        error = partition.epoch_refusal(entry.current_leader_epoch)
    if partition is None or error is not ErrorKind.NONE:
        return EpochEndOffset(error.kafka_code, entry.partition)
    epoch, end = partition.log.epochs.epoch_end(entry.leader_epoch, partition.high_watermark)
    return EpochEndOffset(ErrorKind.NONE, entry.partition, epoch, end)
