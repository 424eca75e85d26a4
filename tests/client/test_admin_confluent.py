"""K3, K6, K7, K12 with confluent-kafka's AdminClient: topics, configs, offsets, records, groups."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

WAIT = 15


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def settled(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(WAIT) for future in futures.values()]


def code_of(futures: dict[Any, Any]) -> int:
    (future,) = futures.values()
    with pytest.raises(ck.KafkaException) as caught:
        future.result(WAIT)
    return int(caught.value.args[0].code())


def create(admin: AdminClient, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    settled(admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]))


def publish(
    broker: BrokerProcess, topic: str, count: int, timestamp: Callable[[int], int] | None = None
) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    failures: list[Any] = []
    for number in range(count):
        at = timestamp(number) if timestamp else 0
        producer.produce(
            topic, b"v%d" % number, b"k%d" % number, partition=0, timestamp=at,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(WAIT) == 0 and not failures


def list_offset(admin: AdminClient, topic: str, spec: Any, partition: int = 0) -> Any:
    (result,) = settled(admin.list_offsets({ck.TopicPartition(topic, partition): spec}))
    return result


# -- topics ----------------------------------------------------------------------------------------------------


def test_topics_are_created_described_grown_and_deleted(admin: AdminClient, topic: str) -> None:
    create(admin, topic, 3, retention_ms="3600000")
    assert code_of(admin.create_topics([NewTopic(topic, 1, 1)])) == ck.KafkaError.TOPIC_ALREADY_EXISTS
    (described,) = settled(admin.describe_topics(ck.TopicCollection([topic])))
    assert described.name == topic and len(described.partitions) == 3 and not described.is_internal
    assert str(described.topic_id) not in ("", "AAAAAAAAAAAAAAAAAAAAAA")
    assert all(part.leader.id == 1 and len(part.isr) == 1 for part in described.partitions)
    assert code_of(admin.create_partitions([NewPartitions(topic, 3)])) == ck.KafkaError.INVALID_PARTITIONS
    assert code_of(admin.create_partitions([NewPartitions(topic, 2)])) == ck.KafkaError.INVALID_PARTITIONS
    settled(admin.create_partitions([NewPartitions(topic, 6)], validate_only=True))
    assert len(admin.list_topics(topic, WAIT).topics[topic].partitions) == 3, "validate_only changes nothing"
    settled(admin.create_partitions([NewPartitions(topic, 5)]))
    assert len(admin.list_topics(topic, WAIT).topics[topic].partitions) == 5
    settled(admin.delete_topics([topic]))
    assert topic not in admin.list_topics(timeout=WAIT).topics
    assert code_of(admin.delete_topics([topic])) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_of_the_same_name_is_another_topic(
    admin: AdminClient, broker: BrokerProcess, topic: str
) -> None:
    """Trap 21: a new id, and nothing of the old one's data."""
    create(admin, topic)
    (before,) = settled(admin.describe_topics(ck.TopicCollection([topic])))
    publish(broker, topic, 10)
    settled(admin.delete_topics([topic]))
    create(admin, topic)
    (after,) = settled(admin.describe_topics(ck.TopicCollection([topic])))
    assert str(before.topic_id) != str(after.topic_id)
    assert list_offset(admin, topic, OffsetSpec.latest()).offset == 0


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (NewTopic("bad name!", 1, 1), ck.KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), ck.KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), ck.KafkaError.TOPIC_EXCEPTION),
        (NewTopic("bad-factor", 1, 3), ck.KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("bad-count", 0, 1), ck.KafkaError.INVALID_PARTITIONS),
        (NewTopic("bad-config", 1, 1, config={"no.such.config": "1"}), ck.KafkaError.INVALID_CONFIG),
        (NewTopic("bad-value", 1, 1, config={"retention.ms": "soon"}), ck.KafkaError.INVALID_CONFIG),
        (NewTopic("bad-policy", 1, 1, config={"cleanup.policy": "shred"}), ck.KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: getattr(value, "topic", None) and value.topic[:12],
)  # fmt: skip
def test_a_topic_that_can_not_be_is_refused_and_nothing_is_made(
    admin: AdminClient, wanted: Any, code: int
) -> None:
    assert code_of(admin.create_topics([wanted])) == code
    assert wanted.topic not in admin.list_topics(timeout=WAIT).topics


def test_validate_only_makes_nothing(admin: AdminClient, topic: str) -> None:
    settled(admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True))
    assert topic not in admin.list_topics(timeout=WAIT).topics


def test_an_unknown_topic_is_created_by_a_producer_and_not_by_an_admin(
    admin: AdminClient, broker: BrokerProcess, topic: str
) -> None:
    with pytest.raises(ck.KafkaException) as caught:
        settled(admin.describe_topics(ck.TopicCollection([topic])))
    assert caught.value.args[0].code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic not in admin.list_topics(timeout=WAIT).topics
    publish(broker, topic, 1)
    assert topic in admin.list_topics(timeout=WAIT).topics


# -- configs ---------------------------------------------------------------------------------------------------


def configs_of(admin: AdminClient, resource: ConfigResource) -> dict[str, ConfigEntry]:
    (entries,) = settled(admin.describe_configs([resource]))
    return entries


def test_every_config_is_listed_with_its_default_and_source(admin: AdminClient, topic: str) -> None:
    create(admin, topic, 1, retention_ms="1234567")
    entries = configs_of(admin, ConfigResource(ResourceType.TOPIC, topic))
    assert entries["retention.ms"].value == "1234567"
    assert entries["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not entries["retention.ms"].is_default
    assert entries["cleanup.policy"].value == "delete" and entries["cleanup.policy"].is_default
    for name in (
        "cleanup.policy", "compression.type", "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms",
        "index.interval.bytes", "max.compaction.lag.ms", "max.message.bytes", "message.timestamp.type",
        "message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms", "min.insync.replicas", "preallocate", "retention.bytes", "retention.ms", "segment.bytes",
        "segment.index.bytes", "segment.jitter.ms", "segment.ms", "unclean.leader.election.enable",
    ):  # fmt: skip
        assert entries[name].value is not None, name
    brokers = configs_of(admin, ConfigResource(ResourceType.BROKER, "1"))
    assert {
        "log.retention.ms",
        "num.partitions",
        "message.max.bytes",
        "inter.broker.protocol.version",
    } <= set(brokers)


def alter(admin: AdminClient, resource: ConfigResource) -> None:
    settled(admin.incremental_alter_configs([resource]))


def change(name: str, value: str | None, operation: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


def test_incremental_changes_set_delete_append_and_subtract(admin: AdminClient, topic: str) -> None:
    create(admin, topic)
    op = AlterConfigOpType

    def now() -> dict[str, ConfigEntry]:
        return configs_of(admin, ConfigResource(ResourceType.TOPIC, topic))

    def apply(*changes: ConfigEntry) -> None:
        alter(admin, ConfigResource(ResourceType.TOPIC, topic, incremental_configs=list(changes)))

    apply(change("retention.ms", "5000", op.SET), change("segment.bytes", "1048576", op.SET))
    assert (now()["retention.ms"].value, now()["segment.bytes"].value) == ("5000", "1048576")
    apply(change("cleanup.policy", "compact", op.APPEND))
    assert sorted(now()["cleanup.policy"].value.split(",")) == ["compact", "delete"]
    apply(change("cleanup.policy", "delete", op.SUBTRACT))
    assert now()["cleanup.policy"].value == "compact"
    apply(change("retention.ms", None, op.DELETE))
    assert now()["retention.ms"].is_default and now()["segment.bytes"].value == "1048576"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.config", "1"),
        ("retention.ms", "soon"),
        ("min.insync.replicas", "0"),
        ("compression.type", "rar"),
    ],
)
def test_a_wrong_config_changes_nothing(admin: AdminClient, topic: str, name: str, value: str) -> None:
    create(admin, topic)
    good = change("retention.ms", "777", AlterConfigOpType.SET)
    changes = [good, change(name, value, AlterConfigOpType.SET)] if name != "retention.ms" else [
        change("segment.bytes", "1048576", AlterConfigOpType.SET), change(name, value, AlterConfigOpType.SET)
    ]  # fmt: skip
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    assert code_of(admin.incremental_alter_configs([resource])) in (
        ck.KafkaError.INVALID_CONFIG,
        ck.KafkaError.INVALID_REQUEST,
    )
    entries = configs_of(admin, ConfigResource(ResourceType.TOPIC, topic))
    assert entries["retention.ms"].is_default and entries["segment.bytes"].is_default


def test_append_to_what_is_no_list_is_refused(admin: AdminClient, topic: str) -> None:
    create(admin, topic)
    wrong = ConfigResource(
        ResourceType.TOPIC, topic, incremental_configs=[change("retention.ms", "1", AlterConfigOpType.APPEND)]
    )
    assert code_of(admin.incremental_alter_configs([wrong])) in (
        ck.KafkaError.INVALID_CONFIG,
        ck.KafkaError.INVALID_REQUEST,
    )


def test_configs_of_an_unknown_topic(admin: AdminClient) -> None:
    nowhere = f"nowhere-{uuid.uuid4()}"
    assert code_of(admin.describe_configs([ConfigResource(ResourceType.TOPIC, nowhere)])) == (
        ck.KafkaError.UNKNOWN_TOPIC_OR_PART
    )
    wrong = ConfigResource(
        ResourceType.TOPIC, nowhere, incremental_configs=[change("retention.ms", "1", AlterConfigOpType.SET)]
    )
    assert code_of(admin.incremental_alter_configs([wrong])) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_old_alter_replaces_everything(admin: AdminClient, topic: str) -> None:
    create(admin, topic, 1, retention_ms="5000", segment_bytes="1048576")
    settled(
        admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "6000"})])
    )
    entries = configs_of(admin, ConfigResource(ResourceType.TOPIC, topic))
    assert entries["retention.ms"].value == "6000" and entries["segment.bytes"].is_default


def test_the_cluster_is_described(admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(WAIT)
    assert cluster.cluster_id and [node.id for node in cluster.nodes] == [1] and cluster.controller.id == 1


# -- offsets and records -----------------------------------------------------------------------------------------


def test_offsets_by_time_are_exact(admin: AdminClient, broker: BrokerProcess, topic: str) -> None:
    """K6, trap 18: the first record that is not older, also inside a batch; nothing after the last one."""
    create(admin, topic)
    start = 1_750_000_000_000
    publish(broker, topic, 1000, lambda number: start + number * 10)
    for ask, expected in (
        (start, 0),
        (start + 1, 1),
        (start + 5000, 500),
        (start + 9990, 999),
        (start - 99_999, 0),
    ):
        found = list_offset(admin, topic, OffsetSpec.for_timestamp(ask))
        assert (found.offset, found.timestamp) == (expected, start + expected * 10)
    assert list_offset(admin, topic, OffsetSpec.for_timestamp(start + 9991)).offset == -1
    assert list_offset(admin, topic, OffsetSpec.earliest()).offset == 0
    assert list_offset(admin, topic, OffsetSpec.latest()).offset == 1000
    newest = list_offset(admin, topic, OffsetSpec.max_timestamp())
    assert (newest.offset, newest.timestamp) == (999, start + 9990)
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    (found,) = consumer.offsets_for_times([ck.TopicPartition(topic, 0, start + 4321)], WAIT)
    assert found.offset == 433
    assert consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), WAIT) == (0, 1000)
    consumer.close()


def test_the_newest_timestamp_need_not_be_the_last(
    admin: AdminClient, broker: BrokerProcess, topic: str
) -> None:
    create(admin, topic)
    start = 1_750_000_000_000
    publish(broker, topic, 100, lambda number: start + (5000 if number == 42 else number))
    newest = list_offset(admin, topic, OffsetSpec.max_timestamp())
    assert (newest.offset, newest.timestamp) == (42, start + 5000)
    assert list_offset(admin, topic, OffsetSpec.for_timestamp(start + 100)).offset == 42


def test_deleted_records_are_out_of_range(admin: AdminClient, broker: BrokerProcess, topic: str) -> None:
    """K7: reading below the start is OFFSET_OUT_OF_RANGE, and auto.offset.reset decides what happens then."""
    create(admin, topic)
    publish(broker, topic, 100)
    (deleted,) = settled(admin.delete_records([ck.TopicPartition(topic, 0, 60)]))
    assert deleted.low_watermark == 60
    assert list_offset(admin, topic, OffsetSpec.earliest()).offset == 60
    assert (
        code_of(admin.delete_records([ck.TopicPartition(topic, 0, 101)])) == ck.KafkaError.OFFSET_OUT_OF_RANGE
    )
    for reset, expected in (("earliest", b"v60"), ("latest", None), ("error", "error")):
        consumer = ck.Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "none", "auto.offset.reset": reset,
             "enable.auto.commit": False}
        )  # fmt: skip
        consumer.assign([ck.TopicPartition(topic, 0, 10)])
        message = consumer.poll(WAIT if expected is not None else 1.0)
        if expected is None:
            assert message is None
        elif expected == "error":
            assert message.error().code() == ck.KafkaError._AUTO_OFFSET_RESET
        else:
            assert (message.value(), message.offset()) == (expected, 60)
        consumer.close()
    (deleted,) = settled(admin.delete_records([ck.TopicPartition(topic, 0, -1)]))
    assert deleted.low_watermark == 100
    publish(broker, topic, 1)
    assert list_offset(admin, topic, OffsetSpec.latest()).offset == 101


# -- groups ----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:list_groups:DeprecationWarning")
def test_groups_are_listed_described_reset_and_deleted(
    admin: AdminClient, broker: BrokerProcess, topic: str
) -> None:
    create(admin, topic, 2)
    publish(broker, topic, 10)
    group = f"g-{topic}"
    consumer = ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "client.id": "me",
        }
    )
    consumer.subscribe([topic])
    assert len(consumer.consume(10, WAIT)) == 10
    consumer.commit(offsets=[ck.TopicPartition(topic, 0, 7, "half-way")], asynchronous=False)
    listed = {found.group_id: found for found in admin.list_consumer_groups().result(WAIT).valid}
    assert listed[group].state == ck.ConsumerGroupState.STABLE and not listed[group].is_simple_consumer_group
    (described,) = settled(admin.describe_consumer_groups([group]))
    (member,) = described.members
    assert member.client_id == "me" and len(member.assignment.topic_partitions) == 2
    assert described.state == ck.ConsumerGroupState.STABLE and described.coordinator.id == 1
    # librdkafka's own list_groups speaks ListGroups and DescribeGroups version 0 (trap 5).
    (old,) = admin.list_groups(group, WAIT)
    assert (old.id, old.state, len(old.members), old.protocol_type) == (group, "Stable", 1, "consumer")
    wanted = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, 0)])
    (offsets,) = settled(admin.list_consumer_group_offsets([wanted]))
    (found,) = offsets.topic_partitions
    assert (found.offset, found.metadata) == (7, "half-way")
    assert code_of(admin.delete_consumer_groups([group])) == ck.KafkaError.NON_EMPTY_GROUP
    consumer.close()
    changed = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, 0, 3)])
    settled(admin.alter_consumer_group_offsets([changed]))
    (offsets,) = settled(admin.list_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(group)]))
    assert {(row.partition, row.offset) for row in offsets.topic_partitions} >= {(0, 3)}
    settled(admin.delete_consumer_groups([group]))
    assert group not in {found.group_id for found in admin.list_consumer_groups().result(WAIT).valid}
    assert code_of(admin.delete_consumer_groups([group])) == ck.KafkaError.GROUP_ID_NOT_FOUND


def test_an_unknown_group_has_no_offsets_and_no_error(
    admin: AdminClient, broker: BrokerProcess, topic: str
) -> None:
    """Trap 3."""
    create(admin, topic)
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"never-{topic}"})
    (found,) = consumer.committed([ck.TopicPartition(topic, 0)], WAIT)
    assert found.offset == ck.OFFSET_INVALID and found.error is None
    consumer.close()
    (described,) = settled(admin.describe_consumer_groups([f"never-{topic}"]))
    assert described.state == ck.ConsumerGroupState.DEAD and described.members == []
