"""Door: Metadata (3): brokers, topics, partitions, leaders. Every broker answers with the same, full, stable list.

v0: empty = all. v1: null = all, empty = none. v4: auto-create flag. v7: leader epochs. v10: topic ids. v12: lookup by id.
"""

from __future__ import annotations

from collections.abc import Container

from headrace.cluster.rows import Topic
from headrace.cluster.state import NO_LEADER, PartitionState
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import ZERO_UUID, is_internal, topic_name_problem
from headrace.core.limits import AUTO_CREATED_PER_REQUEST
from headrace.kafka.call import Call
from headrace.kafka.operations import ON_TOPIC
from headrace.security.rights import CLUSTER, OWN, TOPIC, Operation, create, describe
from headrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

KEY = 3
VERSIONS = (0, 13)
RIGHTS = OWN.showing(describe(TOPIC)).making(create(CLUSTER), create(TOPIC))
"""Judged here, topic by topic: who may not see one hears the same whether it is there or not (A44)."""


async def handle(call: Call[MetadataRequest]) -> MetadataResponse:
    request = call.request
    await call.broker.liveness.leaders_settled()
    image = call.broker.image
    brokers = call.services.client_brokers.now()
    named = {node.id for node in brokers}
    every = request.topics is None or (call.version == 0 and not request.topics)
    pace = call.pace()
    if every:
        topics = []
        async for topic in pace.over(list(image.topics.values())):
            if not call.sees(TOPIC, topic.name):
                continue
            topics.append(_row(call, topic, named))
            await pace.step(len(topic.partitions))
    else:
        creation = Creation(call, named, request.allow_auto_topic_creation or call.version < 4)
        topics = []
        # Each topic once, as in Kafka: the answer must not grow with how often a name is repeated (A3).
        wanted = {(entry.name, entry.topic_id): entry for entry in request.topics or ()}
        async for entry in pace.over(wanted.values()):
            row = await _named(call, entry, named, creation)
            topics.append(row)
            await pace.step(len(row.partitions))
    controller = image.controller
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node.id, node.registration.host, node.registration.port, node.rack)
            for node in brokers
        ],
        cluster_id=call.broker.cluster_id,
        controller_id=-1 if controller is None else controller.broker_id,
        topics=topics,
        cluster_authorized_operations=call.cluster_bits(call.request.include_cluster_authorized_operations),
    )


async def _named(
    call: Call[MetadataRequest], entry: MetadataRequestTopic, named: Container[int], creation: Creation
) -> MetadataResponseTopic:
    image = call.broker.image
    if entry.name is None and call.version < 12:
        # Ids are shown from v10 on and asked for from v12 on; before that an answer can't do without a name.
        return MetadataResponseTopic(ErrorKind.INVALID_REQUEST, "", entry.topic_id)
    if entry.topic_id != ZERO_UUID and call.version >= 12:
        topic = image.topic_by_id(entry.topic_id)
        if topic is None or call.refuses(Operation.DESCRIBE, TOPIC, topic.name):
            return MetadataResponseTopic(ErrorKind.UNKNOWN_TOPIC_ID, None, entry.topic_id)
        return _row(call, topic, named)
    name = entry.name or ""
    if call.refuses(Operation.DESCRIBE, TOPIC, name):
        return MetadataResponseTopic(ErrorKind.TOPIC_AUTHORIZATION_FAILED, name)
    topic = image.topic(name)
    if topic is not None:
        return _row(call, topic, named)
    if topic_name_problem(name) is not None:
        return MetadataResponseTopic(ErrorKind.INVALID_TOPIC_EXCEPTION, name)
    if creation.allowed and not is_internal(name):
        if not call.may(Operation.CREATE, CLUSTER) and call.refuses(Operation.CREATE, TOPIC, name):
            return MetadataResponseTopic(ErrorKind.TOPIC_AUTHORIZATION_FAILED, name)
        return await creation.of(name)
    return MetadataResponseTopic(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, name)


class Creation:
    """What one request makes by naming it: few enough to be answered soon on a slow machine; clients ask for the rest."""

    def __init__(self, call: Call[MetadataRequest], named: Container[int], wanted: bool) -> None:
        self._named = named
        self.allowed = wanted and call.services.auto_creation.is_allowed
        self._call = call
        self._left = AUTO_CREATED_PER_REQUEST

    async def of(self, name: str) -> MetadataResponseTopic:
        services = self._call.services
        now_ms = services.broker.runtime.clock.now_ms()
        if not self._left or not services.auto_creation.take(self._call.client_host, now_ms):
            # Every client asks again after this one.
            return MetadataResponseTopic(ErrorKind.LEADER_NOT_AVAILABLE, name)
        self._left -= 1
        try:
            return _row(self._call, await services.topics.auto_create(name), self._named)
        except HeadraceError as problem:
            return MetadataResponseTopic(problem.kind.kafka_code, name)


def _row(call: Call[MetadataRequest], topic: Topic, named: Container[int]) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        ErrorKind.NONE,
        topic.name,
        topic.id,
        topic.internal,
        [
            _partition(call, number, state, named)
            for number, state in enumerate(topic.partitions)
            if state is not None
        ],
        call.bits(call.request.include_topic_authorized_operations, ON_TOPIC, TOPIC, topic.name),
    )


def _partition(
    call: Call[MetadataRequest], number: int, state: PartitionState, named: Container[int]
) -> MetadataResponsePartition:
    image = call.broker.image
    # As in Kafka a leader is one of the brokers of the answer or nobody: librdkafka would ask one that it forgets at the end of it.
    leader = state.leader if state.leader in named else NO_LEADER
    return MetadataResponsePartition(
        ErrorKind.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorKind.NONE,
        number,
        leader,
        state.leader_epoch,
        list(state.replicas),
        list(state.isr),
        [replica for replica in state.replicas if not image.is_live(replica)],
    )
