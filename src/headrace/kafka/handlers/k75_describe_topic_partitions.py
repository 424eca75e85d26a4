"""Door: DescribeTopicPartitions (75): topics page by page. Java's admin client and Spark use it when it is there."""

from __future__ import annotations

from headrace.cluster.rows import Topic
from headrace.cluster.state import NO_LEADER
from headrace.core.errors import ErrorKind
from headrace.kafka.call import Call
from headrace.kafka.operations import ON_TOPIC
from headrace.security.guard import Parts
from headrace.security.rights import TOPIC, describe, needs
from headrace.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

KEY = 75
VERSIONS = (0, 0)
RIGHTS = needs(describe(TOPIC, "topics[].name")).showing(describe(TOPIC))
PARTS = (Parts("topics", "topics"),)

MAX_PARTITIONS = 2000


async def handle(call: Call[DescribeTopicPartitionsRequest]) -> DescribeTopicPartitionsResponse:
    request = call.request
    image = call.broker.image
    names = sorted(
        {topic.name for topic in request.topics} or {name for name in image.topics if call.sees(TOPIC, name)}
    )
    first = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        first = max(0, request.cursor.partition_index)
    left = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    response = DescribeTopicPartitionsResponse()
    async for name in call.pace().over(names):
        start = first if request.cursor is not None and name == request.cursor.topic_name else 0
        topic = image.topic(name)
        if left <= 0:
            response.next_cursor = Cursor(name, start)
            break
        if topic is None:
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, name)
            )
            continue
        end = min(len(topic.partitions), start + left)
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                ErrorKind.NONE,
                name,
                topic.id,
                topic.internal,
                _rows(call, topic, start, end),
                call.bits(True, ON_TOPIC, TOPIC, name),
            )
        )
        left -= end - start
        if end < len(topic.partitions):
            response.next_cursor = Cursor(name, end)
            break
    return response


def _rows(
    call: Call[DescribeTopicPartitionsRequest], topic: Topic, start: int, end: int
) -> list[DescribeTopicPartitionsResponsePartition]:
    rows = []
    named = {node.id for node in call.services.client_brokers.now()}  # as Metadata says it
    for number in range(start, end):
        state = topic.partitions[number]
        if state is None:
            continue
        leader = state.leader if state.leader in named else NO_LEADER
        rows.append(
            DescribeTopicPartitionsResponsePartition(
                ErrorKind.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorKind.NONE,
                number,
                leader,
                state.leader_epoch,
                list(state.replicas),
                list(state.isr),
                # Never null: Java's admin client trips over a null list.
                list(state.elr),
                [],
                [replica for replica in state.replicas if not call.broker.image.is_live(replica)],
            )
        )
    return rows
