"""Door: CreateTopics (19). v4: -1 means the broker's default. v5: the created topic is described. v7: topic ids."""

from __future__ import annotations

from collections import Counter

from headrace.cluster.configs import describe_topic
from headrace.cluster.topics import CreateTopic
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MAX_NEW_PARTITIONS_PER_REQUEST
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import CLUSTER, TOPIC, create, describe_configs, either, needs
from headrace.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

KEY = 19
VERSIONS = (2, 7)
RIGHTS = needs(either(create(CLUSTER), create(TOPIC, "topics[].name"))).showing(describe_configs(TOPIC))
PARTS = (Parts("topics", "topics"),)


async def handle(call: Call[CreateTopicsRequest]) -> CreateTopicsResponse:
    request = call.request
    seen = Counter(topic.name for topic in request.topics)
    results = []
    asked = 0
    since = call.services.latest.reads
    wanted = {topic.name: topic for topic in request.topics}
    async for name, topic in call.pace().over(wanted.items()):
        if seen[name] > 1:
            results.append(
                _failed(name, ErrorKind.INVALID_REQUEST, "the topic is named twice in one request")
            )
            continue
        asked += max(topic.num_partitions, len(topic.assignments), 1)
        if asked > MAX_NEW_PARTITIONS_PER_REQUEST:
            # A4. As in Kafka, which has its own number.
            message = f"one request makes at most {MAX_NEW_PARTITIONS_PER_REQUEST} partitions"
            results.append(_failed(name, ErrorKind.POLICY_VIOLATION, message))
            continue
        results.append(await _create(call, topic, request.validate_only, since))
    return CreateTopicsResponse(topics=results)


async def _create(
    call: Call[CreateTopicsRequest], topic: CreatableTopic, validate_only: bool, since: int
) -> CreatableTopicResult:
    duplicates = [name for name, count in Counter(entry.name for entry in topic.configs).items() if count > 1]
    if duplicates:
        return _failed(topic.name, ErrorKind.INVALID_CONFIG, f"{duplicates[0]} is given twice")
    numbers = [entry.partition_index for entry in topic.assignments]
    if len(set(numbers)) != len(numbers):
        return _failed(topic.name, ErrorKind.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
    wanted = CreateTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={entry.partition_index: tuple(entry.broker_ids) for entry in topic.assignments},
        configs={entry.name: entry.value for entry in topic.configs},
    )
    try:
        created = await call.services.topics.create(wanted, validate_only=validate_only, since=since)
    except HeadraceError as problem:
        return _failed(topic.name, problem.kind, problem.detail)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=created.topic_id,
        error_code=ErrorKind.NONE,
        error_message=None,
        num_partitions=created.partitions,
        replication_factor=created.replication_factor,
        configs=[
            CreatableTopicConfigs(entry.name, entry.value, entry.read_only, entry.source, entry.sensitive)
            for entry in describe_topic(created.configs, call.broker.image.layers())
        ],
    )


def _failed(name: str, kind: ErrorKind, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=kind.kafka_code, error_message=message, configs=[])
