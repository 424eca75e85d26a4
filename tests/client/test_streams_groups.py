"""F37: streams groups (KIP-1071) as frames on a real broker: internal topics, tasks, offsets, kills, configs, tools."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from raw_client import RawClient
from raw_share import set_group_config
from raw_transactions import retried

from headrace.core.errors import ErrorKind
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.api_versions import ApiVersionsRequest
from headrace.wire.messages.delete_groups import DeleteGroupsRequest
from headrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.list_groups import ListGroupsRequest
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from headrace.wire.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

pytestmark = pytest.mark.client

TOPIC = 2
MISSING_SOURCES, MISSING_INTERNAL = 1, 3


def counting(source: str) -> Topology:
    """Words are grouped anew and counted."""
    between, kept = f"{source}-by-word-repartition", f"{source}-counts-changelog"
    compact = [KeyValue("cleanup.policy", "compact")]
    return Topology(
        0,
        [
            Subtopology("0", [source], repartition_sink_topics=[between]),
            Subtopology(
                "1",
                state_changelog_topics=[TopicInfo(kept, topic_configs=compact)],
                repartition_source_topics=[TopicInfo(between)],
            ),
        ],
    )


def join(raw: RawClient, group: str, member_id: str, **fields: Any) -> Any:
    fields.setdefault("topology", counting(group))
    request = StreamsGroupHeartbeatRequest(
        group,
        member_id,
        0,
        -1,
        rebalance_timeout_ms=60_000,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=f"process-of-{member_id}",
        **fields,
    )
    return raw.call(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, request)


def beat(raw: RawClient, group: str, member_id: str, epoch: int, **fields: Any) -> Any:
    request = StreamsGroupHeartbeatRequest(group, member_id, epoch, -1, **fields)
    return raw.call(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, request)


def found(raw: RawClient, group: str) -> None:
    """The coordinator is there, and knows the topics."""
    request = FindCoordinatorRequest(group, 0)
    retried(lambda: raw.call(ApiKey.FIND_COORDINATOR, 3, request), lambda answer: answer.error_code)


def until(ask: Callable[[], Any], done: Callable[[Any], bool]) -> Any:
    """For what comes when the coordinator has heard of it."""
    end = time.monotonic() + 120
    while not done(answer := ask()):
        assert time.monotonic() < end, answer
        time.sleep(0.02)
    return answer


def loaded(answer: Any) -> bool:
    waits = (ErrorKind.COORDINATOR_LOAD_IN_PROGRESS, ErrorKind.NOT_COORDINATOR)
    return answer.error_code not in [kind.kafka_code for kind in waits]


def partitions(raw: RawClient, topic: str) -> int:
    request = MetadataRequest([MetadataRequestTopic(name=topic)], False)
    return len(raw.call(ApiKey.METADATA, 9, request).topics[0].partitions)


def tasks(answer: Any) -> list[tuple[str, tuple[int, ...]]]:
    return sorted((task.subtopology_id, tuple(task.partitions)) for task in answer.active_tasks)


ALL = [("0", (0, 1, 2)), ("1", (0, 1, 2))]


def at_once(raw: RawClient, group: str) -> None:
    settings = {"streams_initial_rebalance_delay_ms": "0", "streams_assignment_interval_ms": "0"}
    assert set_group_config(raw, group, **settings) == 0


def working(raw: RawClient, group: str, member_id: str = "m") -> Any:
    """A member with all tasks."""
    first = until(lambda: join(raw, group, member_id), loaded)
    assert first.error_code == 0, first.error_message
    epoch = first.member_epoch
    held = tasks(first)

    def ask() -> Any:
        nonlocal epoch, held
        answer = beat(raw, group, member_id, epoch)
        assert answer.error_code == 0, answer.error_message
        epoch = answer.member_epoch
        if answer.active_tasks is not None:
            held = tasks(answer)
        return answer

    return until(ask, lambda answer: held == ALL and not answer.status)


def test_f37_a_member_joins_and_its_internal_topics_are_made(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as raw:
        found(raw, topic)
        at_once(raw, topic)
        early = until(lambda: join(raw, topic, "m"), loaded)
        assert [status.status_code for status in early.status] == [MISSING_SOURCES]
        assert early.member_epoch > 0 and early.active_tasks == []
        raw.create_topic(topic, 3)
        epoch = early.member_epoch
        until(
            lambda: beat(raw, topic, "m", epoch),
            lambda answer: [status.status_code for status in answer.status] != [MISSING_SOURCES],
        )
        assert partitions(raw, f"{topic}-by-word-repartition") == 3
        assert partitions(raw, f"{topic}-counts-changelog") == 3
        resource = DescribeConfigsResource(TOPIC, f"{topic}-counts-changelog", ["cleanup.policy"])
        answer = raw.call(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest([resource]))
        assert answer.results[0].configs[0].value == "compact"
        assert beat(raw, topic, "m", -1).error_code == 0
        worker = working(raw, topic)
        assert worker.heartbeat_interval_ms == 5_000


def test_f37_describe_list_delete_and_offsets(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as raw:
        found(raw, topic)
        at_once(raw, topic)
        raw.create_topic(topic, 3)
        worker = working(raw, topic)
        answer = raw.call(ApiKey.LIST_GROUPS, 5, ListGroupsRequest([], ["streams"]))
        assert ("streams", "Stable") in [
            (row.group_type, row.group_state) for row in answer.groups if row.group_id == topic
        ]
        (group,) = raw.call(
            ApiKey.STREAMS_GROUP_DESCRIBE, 0, StreamsGroupDescribeRequest([topic], True)
        ).groups
        assert (group.error_code, group.group_state, group.topology.epoch) == (0, "Stable", 0)
        assert group.topology.subtopologies[1].state_changelog_topics[0].partitions == 3
        (member,) = group.members
        assert (member.member_id, member.process_id, member.member_epoch) == (
            "m",
            "process-of-m",
            worker.member_epoch,
        )
        assert sorted((t.subtopology_id, tuple(t.partitions)) for t in member.assignment.active_tasks) == ALL
        assert group.authorized_operations > 0

        def commit(epoch: int) -> ErrorKind:
            rows = [OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(1, 5)])]
            request = OffsetCommitRequest(topic, epoch, "m", topics=rows)
            done = raw.call(ApiKey.OFFSET_COMMIT, 9, request)
            return ErrorKind(done.topics[0].partitions[0].error_code)

        assert commit(worker.member_epoch) is ErrorKind.NONE
        assert commit(worker.member_epoch + 1) is ErrorKind.STALE_MEMBER_EPOCH

        def delete() -> ErrorKind:
            done = raw.call(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest([topic]))
            return ErrorKind(done.results[0].error_code)

        assert delete() is ErrorKind.NON_EMPTY_GROUP
        assert beat(raw, topic, "m", -1).member_epoch == -1
        assert delete() is ErrorKind.NONE
        (gone,) = raw.call(ApiKey.STREAMS_GROUP_DESCRIBE, 0, StreamsGroupDescribeRequest([topic])).groups
        assert gone.error_code == ErrorKind.GROUP_ID_NOT_FOUND


def test_f37_a_group_survives_kill_9() -> None:
    with BrokerProcess() as broker:
        with RawClient(broker.kafka_port) as raw:
            found(raw, "words")
            at_once(raw, "words")
            raw.create_topic("words", 3)
            worker = working(raw, "words")
        broker.kill()
        broker.start()
        with RawClient(broker.kafka_port) as raw:
            found(raw, "words")
            owned = [TaskIds(subtopology, list(numbers)) for subtopology, numbers in ALL]
            fields = {"active_tasks": owned, "standby_tasks": [], "warmup_tasks": []}
            answer = until(lambda: beat(raw, "words", "m", worker.member_epoch, **fields), loaded)
            assert (answer.error_code, answer.member_epoch) == (0, worker.member_epoch)
            assert answer.active_tasks is None and not answer.status, "nothing changed"
            assert (
                beat(raw, "words", "m", worker.member_epoch + 1).error_code == ErrorKind.FENCED_MEMBER_EPOCH
            )
            assert beat(raw, "words", "other", 3).error_code == ErrorKind.UNKNOWN_MEMBER_ID


def test_f37_configs_of_a_streams_group_are_obeyed(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as raw:
        found(raw, topic)
        at_once(raw, topic)
        assert set_group_config(raw, topic, streams_num_standby_replicas="3") == ErrorKind.INVALID_CONFIG
        assert set_group_config(raw, topic, streams_num_standby_replicas="1") == 0
        assert set_group_config(raw, topic, streams_heartbeat_interval_ms="7000") == 0
        assert set_group_config(raw, topic, streams_session_timeout_ms="50000") == 0
        raw.create_topic(topic, 3)
        epochs = dict.fromkeys("ab", 0)
        own: dict[str, dict[str, list[TaskIds]]] = {}

        def hear(name: str, answer: Any) -> None:
            assert answer.error_code == 0, answer.error_message
            assert answer.heartbeat_interval_ms == 7_000
            epochs[name] = answer.member_epoch
            if answer.active_tasks is not None:
                lists = {"active_tasks": answer.active_tasks, "standby_tasks": answer.standby_tasks}
                own[name] = {**lists, "warmup_tasks": []}

        for name in epochs:
            hear(name, until(partial(join, raw, topic, name), loaded))

        def copies() -> int:
            for name in epochs:
                hear(name, beat(raw, topic, name, epochs[name], **own[name]))
            return sum(len(task.partitions) for mine in own.values() for task in mine["standby_tasks"])

        assert until(copies, lambda number: number == 3) == 3, "one standby for each task with state"


def test_f37_what_is_refused_says_why(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as raw:
        found(raw, topic)
        at_once(raw, topic)
        raw.create_topic(topic, 3)
        working(raw, topic)
        pattern = Topology(0, [Subtopology("0", [], [".*"])])
        for fields, error, word in (
            ({"instance_id": "static"}, ErrorKind.INVALID_REQUEST, "group.instance.id"),
            ({"topology": pattern}, ErrorKind.INVALID_REQUEST, "group.protocol=classic"),
            ({"topology": Topology(0, [])}, ErrorKind.STREAMS_INVALID_TOPOLOGY, "subtopologies"),
            ({"topology": counting("else")}, ErrorKind.INVALID_REQUEST, "application.id"),
            ({"client_tags": [KeyValue("k", "v" * 70_000)]}, ErrorKind.INVALID_REQUEST, "tags"),
        ):
            answer = join(raw, topic, "n", **fields)
            assert answer.error_code == error and word in answer.error_message, answer


def test_f37_interactive_queries_find_their_way(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as raw:
        found(raw, topic)
        at_once(raw, topic)
        raw.create_topic(topic, 3)
        first = until(lambda: join(raw, topic, "m", user_endpoint=Endpoint("host", 65_535)), loaded)
        epoch = first.member_epoch

        def ask() -> Any:
            nonlocal epoch
            answer = beat(raw, topic, "m", epoch)
            epoch = answer.member_epoch
            return answer

        answer = until(
            ask,
            lambda answer: (
                answer.partitions_by_user_endpoint and answer.partitions_by_user_endpoint[0].active_partitions
            ),
        )
        (row,) = answer.partitions_by_user_endpoint
        assert (row.user_endpoint.host, row.user_endpoint.port) == ("host", 65_535)
        assert {part.topic: part.partitions for part in row.active_partitions}[topic] == [0, 1, 2]


def test_f37_clients_are_told_that_streams_groups_are_there(broker: BrokerProcess) -> None:
    with RawClient(broker.kafka_port) as raw:
        answer = raw.call(ApiKey.API_VERSIONS, 4, ApiVersionsRequest("a", "1"))
        assert {88, 89} <= {row.api_key for row in answer.api_keys}
        levels = {row.name: row.max_version_level for row in answer.finalized_features}
        assert levels["streams.version"] == 1
