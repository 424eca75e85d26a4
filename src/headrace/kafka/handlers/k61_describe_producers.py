"""Door: DescribeProducers (61): who writes to a partition, and since which offset its transaction is open."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import TOPIC, needs, read
from headrace.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

KEY = 61
VERSIONS = (0, 0)
RIGHTS = needs(read(TOPIC, "topics[].name"))
PARTS = (Parts("topics", "topics"),)


async def handle(call: Call[DescribeProducersRequest]) -> DescribeProducersResponse:
    request = call.request
    pace = call.pace()
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name,
                [
                    _describe(call, topic.name, number)
                    # Each partition once: the answer must not grow with how often it is repeated (A3).
                    async for number in pace.over(dict.fromkeys(topic.partition_indexes))
                ],
            )
            async for topic in pace.over(request.topics)
        ]
    )


def _describe(call: Call[DescribeProducersRequest], topic: str, number: int) -> PartitionResponse:
    partition, error = call.broker.find_partition(topic, number)
    if partition is not None and not partition.is_leader:
        error = ErrorKind.NOT_LEADER_OR_FOLLOWER
    if partition is None or error is not ErrorKind.NONE:
        return PartitionResponse(number, error.kafka_code, None, [])
    producers = [
        ProducerState(
            producer_id,
            producer.epoch,
            producer.batches[-1].last_sequence if producer.batches else -1,
            producer.batches[-1].timestamp if producer.batches else -1,
            producer.coordinator_epoch,
            producer.transaction_start,
        )
        for producer_id, producer in partition.log.producers
    ]
    return PartitionResponse(number, ErrorKind.NONE, None, producers)
