"""F37: what Kafka's own tools and newest clients call, as frames: config resources, features, log directories, topic ids."""

from __future__ import annotations

import time

import pytest
from raw_client import RawClient
from raw_transactions import retried

from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.records.build import Record, build_batch
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.wire.messages.api_versions import ApiVersionsRequest
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.describe_cluster import DescribeClusterRequest
from headrace.wire.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from headrace.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.list_config_resources import ListConfigResourcesRequest
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from headrace.wire.produce import ProducePartition, ProduceRequest, ProduceTopic

pytestmark = pytest.mark.client

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
NOBODY = b"\x13" * 16


def topic_id(raw: RawClient, name: str) -> bytes:
    request = MetadataRequest([MetadataRequestTopic(ZERO_UUID, name)])
    found: bytes = raw.call(ApiKey.METADATA, 12, request).topics[0].topic_id
    return found


def set_group_config(raw: RawClient, group: str, name: str, value: str) -> ErrorKind:
    resource = AlterConfigsResource(GROUP, group, [AlterableConfig(name, 0, value)])
    answer = raw.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest([resource]))
    return ErrorKind(answer.responses[0].error_code)


def test_f37_list_config_resources(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        assert set_group_config(raw, topic, "share.auto.offset.reset", "earliest") is ErrorKind.NONE

        def listed(version: int, *types: int) -> set[tuple[int, str]]:
            answer = raw.call(ApiKey.LIST_CONFIG_RESOURCES, version, ListConfigResourcesRequest(list(types)))
            assert answer.error_code == 0
            return {(row.resource_type, row.resource_name) for row in answer.config_resources}

        everything = listed(1)
        assert {(TOPIC, topic), (GROUP, topic), (BROKER, "1")} <= everything
        assert listed(1, GROUP) == {row for row in everything if row[0] == GROUP}
        assert listed(1, CLIENT_METRICS) == listed(0) == set(), "nothing is pushed, so nothing is configured"
        strange = raw.call(ApiKey.LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest([77]))
        assert strange.error_code == ErrorKind.UNSUPPORTED_VERSION


def test_f37_update_features(broker: BrokerProcess) -> None:
    with RawClient(broker.kafka_port) as raw:

        def ask(version: int, **levels: int) -> list[tuple[int, str | None]]:
            updates = [FeatureUpdateKey(name.replace("_", "."), level) for name, level in levels.items()]
            answer = raw.call(ApiKey.UPDATE_FEATURES, version, UpdateFeaturesRequest(60_000, updates))
            rows = [(row.error_code, row.error_message) for row in answer.results]
            return rows or [(answer.error_code, answer.error_message)]

        refused = ErrorKind.INVALID_UPDATE_VERSION
        for version in (0, 1, 2):
            assert ask(version, transaction_version=2) == [(0, None)], "as it is"
            ((code, text),) = ask(version, transaction_version=1)
            assert code == refused and "is at level 2" in (text or "")
            ((code, text),) = ask(version, metadata_version=20)
            assert code == refused and "transaction.version" in (text or ""), "it says which there are"
        assert [code for code, _ in ask(1, share_version=1, group_version=0)] == [0, refused]
        assert ask(2)[0][0] == ErrorKind.INVALID_REQUEST


def test_f37_alter_replica_log_dirs(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        here = raw.call(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(None)).results[0].log_dir

        def move(path: str, name: str) -> ErrorKind:
            wanted = AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(name, [0])])
            answer = raw.call(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, AlterReplicaLogDirsRequest([wanted]))
            (row,) = answer.results[0].partitions
            return ErrorKind(row.error_code)

        assert move(here, topic) is ErrorKind.NONE, "it is there"
        assert move(here + "/", topic) is ErrorKind.NONE
        assert move("/elsewhere", topic) is ErrorKind.LOG_DIR_NOT_FOUND
        assert move(here, topic + "x") is ErrorKind.UNKNOWN_TOPIC_OR_PARTITION


def test_f37_telemetry_is_not_on_offer(broker: BrokerProcess) -> None:
    """As with a Kafka that has no plugin for it: clients then do not push, and say nothing."""
    with RawClient(broker.kafka_port) as raw:
        offered = {
            row.api_key for row in raw.call(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("t", "1")).api_keys
        }
    assert not offered & {71, 72}


def test_f35_authorized_operations_are_filled_where_they_are_asked_for(
    broker: BrokerProcess, topic: str
) -> None:
    """As Kafka without an authorizer: all that the resource has."""
    unknown, topics, groups, cluster = -(2**31), 3576, 3400, 8096
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        for asked in (False, True):
            names = [MetadataRequestTopic(ZERO_UUID, topic)]
            told = raw.call(ApiKey.METADATA, 8, MetadataRequest(names, False, asked, asked))
            assert told.topics[0].topic_authorized_operations == (topics if asked else unknown)
            assert told.cluster_authorized_operations == (cluster if asked else unknown)
            described = raw.call(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(asked))
            assert described.cluster_authorized_operations == (cluster if asked else unknown)
            group = raw.call(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest([topic], asked)).groups[0]
            assert group.authorized_operations == (groups if asked else unknown)
        rows = raw.call(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, DescribeTopicPartitionsRequest([TopicRequest(topic)])
        )
        assert rows.topics[0].topic_authorized_operations == topics


def test_f37_offsets_by_topic_id(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        known = topic_id(raw, topic)
        find = FindCoordinatorRequest(topic, 0)
        retried(lambda: raw.call(ApiKey.FIND_COORDINATOR, 2, find), lambda answer: answer.error_code)

        def commit(which: bytes, offset: int, partition: int = 0) -> ErrorKind:
            row = OffsetCommitRequestPartition(partition, offset, -1, "note")
            request = OffsetCommitRequest(
                topic, topics=[OffsetCommitRequestTopic(topic_id=which, partitions=[row])]
            )

            def code(answer: object) -> int:
                (found,) = answer.topics  # type: ignore[attr-defined]
                assert found.topic_id == which
                return int(found.partitions[0].error_code)

            return ErrorKind(code(retried(lambda: raw.call(ApiKey.OFFSET_COMMIT, 10, request), code)))

        def fetch(*which: bytes) -> dict[bytes, tuple[int, ErrorKind]]:
            topics = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in which]
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(topic, topics=topics or None)])
            (group,) = raw.call(ApiKey.OFFSET_FETCH, 10, request).groups
            assert group.error_code == 0
            return {
                row.topic_id: (row.partitions[0].committed_offset, ErrorKind(row.partitions[0].error_code))
                for row in group.topics
            }

        assert commit(known, 7) is ErrorKind.NONE
        assert commit(NOBODY, 7) is ErrorKind.UNKNOWN_TOPIC_ID
        assert commit(known, 7, partition=9) is ErrorKind.UNKNOWN_TOPIC_OR_PARTITION
        assert fetch() == {known: (7, ErrorKind.NONE)}
        assert fetch(known, NOBODY) == {
            known: (7, ErrorKind.NONE),
            NOBODY: (-1, ErrorKind.UNKNOWN_TOPIC_ID),
        }
        again = made_again(raw, topic)
        assert fetch(known, again) == {
            known: (-1, ErrorKind.UNKNOWN_TOPIC_ID),
            again: (-1, ErrorKind.NONE),
        }, "what was committed for the topic before is no place in this one"
        assert commit(known, 8) is ErrorKind.UNKNOWN_TOPIC_ID


def made_again(raw: RawClient, topic: str) -> bytes:
    deleted = raw.call(
        ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=[DeleteTopicState(topic, ZERO_UUID)])
    )
    assert deleted.responses[0].error_code == 0
    raw.create_topic(topic)
    return topic_id(raw, topic)


@pytest.mark.parametrize("acks", [1, -1])
def test_f37_produce_by_topic_id(broker: BrokerProcess, topic: str, acks: int) -> None:
    def produce(*which: bytes) -> list[tuple[bytes, ErrorKind, int]]:
        batch = build_batch([Record(None, b"value")], wall_ms=int(time.time() * 1000))
        topics = [ProduceTopic("", each, [ProducePartition(0, bytearray(batch))]) for each in which]
        answer = raw.call(ApiKey.PRODUCE, 13, ProduceRequest(None, acks, 10_000, topics))
        return [
            (row.topic_id, ErrorKind(row.partitions[0].error_code), row.partitions[0].base_offset)
            for row in answer.topics
        ]

    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        known = topic_id(raw, topic)
        assert produce(known) == [(known, ErrorKind.NONE, 0)]
        assert produce(NOBODY, known, ZERO_UUID) == [
            (NOBODY, ErrorKind.UNKNOWN_TOPIC_ID, -1),
            (known, ErrorKind.NONE, 1),
            (ZERO_UUID, ErrorKind.UNKNOWN_TOPIC_ID, -1),
        ]
        again = made_again(raw, topic)
        assert produce(known) == [(known, ErrorKind.UNKNOWN_TOPIC_ID, -1)]
        assert produce(again) == [(again, ErrorKind.NONE, 0)]
