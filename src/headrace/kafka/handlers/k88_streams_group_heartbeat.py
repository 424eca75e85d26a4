"""Door: StreamsGroupHeartbeat (88): membership of streams groups (KIP-1071). Internal topics that a topology needs and that are
missing are made here, by the broker that was asked; the tasks come with a later heartbeat, when the coordinator has seen them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.cluster.topics import CreateTopic
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MAX_NEW_PARTITIONS_PER_REQUEST, MAX_PROTOCOL_METADATA_BYTES
from headrace.groups.streams import topology
from headrace.groups.streams.commands import StreamsGroupHeartbeat, StreamsHeartbeatResult, TasksByRole
from headrace.groups.streams.members import TaskLists
from headrace.groups.streams.state import Endpoints
from headrace.kafka.call import Call
from headrace.security.rights import CLUSTER, GROUP, TOPIC, create, describe, needs, read
from headrace.wire.messages.streams_group_heartbeat import (
    Endpoint,
    EndpointToPartitions,
    KeyValue,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    TopicPartition,
)

KEY = 88
VERSIONS = (0, 0)
_INTERNAL = (
    "topology.subtopologies[].repartition_source_topics[].name",
    "topology.subtopologies[].state_changelog_topics[].name",
)
RIGHTS = needs(
    read(GROUP, "group_id"),
    describe(TOPIC, "topology.subtopologies[].source_topics[]", *_INTERNAL),
).making(create(CLUSTER), create(TOPIC, *_INTERNAL))


async def handle(call: Call[StreamsGroupHeartbeatRequest]) -> StreamsGroupHeartbeatResponse:
    request = call.request
    unsupported = _unsupported(request)
    given = None if request.topology is None else _topology(request)
    try:
        result: StreamsHeartbeatResult = await call.services.groups.ask(
            request.group_id,
            StreamsGroupHeartbeat(
                request.group_id,
                request.member_id,
                request.member_epoch,
                request.endpoint_information_epoch,
                request.rack_id,
                request.rebalance_timeout_ms,
                given,
                _owned(request),
                request.process_id,
                None
                if request.user_endpoint is None
                else (request.user_endpoint.host, request.user_endpoint.port),
                None if request.client_tags is None else tuple(sorted(_pairs(request.client_tags))),
                request.shutdown_application,
                call.client_id,
                f"/{call.client_host}",
                unsupported,
            ),
        )
    except HeadraceError as problem:
        return StreamsGroupHeartbeatResponse(error_code=problem.kind.kafka_code, error_message=problem.detail)
    trouble = await _make(call, result.missing)
    return _response(result, trouble)


# --- what came -----------------------------------------------------------------------------------------------


def _unsupported(request: StreamsGroupHeartbeatRequest) -> str | None:
    """What Kafka does not do either (4.3), and what is more than a group may leave behind (A4)."""
    if request.instance_id is not None:
        return "Static membership is not supported in streams groups. Remove group.instance.id."
    if request.task_offsets is not None or request.task_end_offsets is not None:
        return "TaskOffsets and TaskEndOffsets are not supported."
    if request.warmup_tasks:
        return "WarmupTasks are not supported."
    lists = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if len({one is None for one in lists}) > 1:
        return "If one task-type is non-null, all must be non-null."
    if sum(len(tag.key) + len(tag.value) for tag in request.client_tags or ()) > MAX_PROTOCOL_METADATA_BYTES:
        return f"The client tags have at most {MAX_PROTOCOL_METADATA_BYTES} bytes."
    if request.topology is None:
        return None
    if any(sub.source_topic_regex for sub in request.topology.subtopologies):
        return "Regular expressions for source topics are not supported. Name the topics, or use group.protocol=classic."
    if sum(_size(sub) for sub in request.topology.subtopologies) > MAX_PROTOCOL_METADATA_BYTES:
        return f"The names and configs of a topology have at most {MAX_PROTOCOL_METADATA_BYTES} bytes."
    return None


def _size(sub: Subtopology) -> int:
    internal = (*sub.state_changelog_topics, *sub.repartition_source_topics)
    names = (sub.subtopology_id, *sub.source_topics, *sub.repartition_sink_topics)
    configs = sum(len(pair.key) + len(pair.value) for topic in internal for pair in topic.topic_configs)
    places = sum(
        len(group.source_topics) + len(group.repartition_source_topics) for group in sub.copartition_groups
    )
    return (
        sum(len(name) for name in names) + sum(len(topic.name) for topic in internal) + configs + 2 * places
    )


def _topology(request: StreamsGroupHeartbeatRequest) -> topology.Topology:
    assert request.topology is not None
    return topology.Topology(
        request.topology.epoch,
        tuple(
            topology.Subtopology(
                sub.subtopology_id,
                tuple(sub.source_topics),
                tuple(_internal(topic) for topic in sub.repartition_source_topics),
                tuple(sub.repartition_sink_topics),
                tuple(_internal(topic) for topic in sub.state_changelog_topics),
                tuple(
                    topology.Copartition(tuple(group.source_topics), tuple(group.repartition_source_topics))
                    for group in sub.copartition_groups
                ),
            )
            for sub in sorted(request.topology.subtopologies, key=lambda sub: sub.subtopology_id)
        ),
    )


def _internal(topic: TopicInfo) -> topology.InternalTopic:
    configs = tuple(sorted(_pairs(topic.topic_configs)))
    return topology.InternalTopic(topic.name, topic.partitions, topic.replication_factor, configs)


def _pairs(given: Iterable[KeyValue]) -> list[tuple[str, str]]:
    return [(pair.key, pair.value) for pair in given]


def _owned(request: StreamsGroupHeartbeatRequest) -> TasksByRole | None:
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return TasksByRole(
        *(
            tuple((task.subtopology_id, tuple(task.partitions)) for task in tasks)
            for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks)
        )
    )


# --- internal topics -----------------------------------------------------------------------------------------


async def _make(call: Call[StreamsGroupHeartbeatRequest], missing: Sequence[topology.InternalTopic]) -> str:
    """What could not be made, in words."""
    if sum(topic.partitions for topic in missing) > MAX_NEW_PARTITIONS_PER_REQUEST:
        return (
            f" They would have more than {MAX_NEW_PARTITIONS_PER_REQUEST} partitions; create them yourself."
        )
    troubles = []
    async for topic in call.pace().over(missing):
        wanted = CreateTopic(
            topic.name, topic.partitions, topic.replication_factor or -1, configs=dict(topic.configs)
        )
        try:
            await call.services.topics.ensure(wanted)
        except HeadraceError as problem:
            troubles.append(f" {topic.name} can't be created: {problem.detail}")
    return "".join(troubles)


# --- what goes -----------------------------------------------------------------------------------------------


def _response(result: StreamsHeartbeatResult, trouble: str) -> StreamsGroupHeartbeatResponse:
    tasks = result.tasks
    missing = topology.Status.MISSING_INTERNAL_TOPICS
    return StreamsGroupHeartbeatResponse(
        error_code=result.error.kafka_code,
        error_message=None if result.error is ErrorKind.NONE else result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        status=[
            Status(notice.status, notice.detail + (trouble if notice.status is missing else ""))
            for notice in result.notices
        ],
        active_tasks=None if tasks is None else task_ids(tasks.active),
        standby_tasks=None if tasks is None else task_ids(tasks.standby),
        warmup_tasks=None if tasks is None else task_ids(tasks.warmup),
        endpoint_information_epoch=result.endpoint_epoch,
        partitions_by_user_endpoint=None if result.endpoints is None else _endpoints(result.endpoints),
    )


def task_ids(lists: TaskLists) -> list[TaskIds]:
    return [TaskIds(subtopology, list(numbers)) for subtopology, numbers in lists]


def _endpoints(endpoints: Endpoints) -> list[EndpointToPartitions]:
    return [
        EndpointToPartitions(
            Endpoint(host, port),
            [TopicPartition(topic, list(numbers)) for topic, numbers in active],
            [TopicPartition(topic, list(numbers)) for topic, numbers in standby],
        )
        for host, port, active, standby in endpoints.table
    ]
