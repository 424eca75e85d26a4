"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets on the wire (APIs 90-92)."""

from __future__ import annotations

import asyncio
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from headrace.broker.peer import PeerConnection
from headrace.core.errors import ErrorKind
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest


def ask(broker: BrokerProcess, key: int, version: int, request: object) -> Any:
    async def once() -> Any:
        connection = await PeerConnection.open("127.0.0.1", broker.kafka_port, "test")
        try:
            return await connection.call(key, version, request, 20)
        finally:
            connection.close()

    return asyncio.run(once())


def where(broker: BrokerProcess, group: str, topic: str | None) -> Any:
    topics = None if topic is None else [DescribeShareGroupOffsetsRequestTopic(topic, [0])]
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, topics)])
    return ask(broker, 90, 1, request).groups[0]


def read_all(broker: BrokerProcess, group: str, topic: str, count: int) -> list[bytes]:
    consumer = ck.ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    consumer.subscribe([topic])
    found: list[bytes] = []
    for _ in range(60):
        found += [message.value() for message in consumer.poll(timeout=0.5) or () if message.error() is None]
        if len(found) >= count:
            break
    consumer.commit_sync(120)
    consumer.close()
    return found


@pytest.mark.skipif(not hasattr(ck, "ShareConsumer"), reason="this confluent-kafka has no ShareConsumer")
def test_where_a_share_group_stands_is_shown_set_and_forgotten(broker: BrokerProcess, topic: str) -> None:
    group = f"g-{topic}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result()
    reset = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    for future in admin.incremental_alter_configs(
        [ConfigResource(ResourceType.GROUP, group, incremental_configs=[reset])]
    ).values():
        future.result()
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(6):
        producer.produce(topic, str(number).encode())
    producer.flush(120)
    assert len(read_all(broker, group, topic, 6)) == 6
    unknown = where(broker, "nobody", topic)
    assert ErrorKind(unknown.error_code) is ErrorKind.GROUP_ID_NOT_FOUND

    shown = where(broker, group, None)
    assert [(row.topic_name, [(p.start_offset, p.lag) for p in row.partitions]) for row in shown.topics] == [
        (topic, [(6, 0)])
    ]
    back = AlterShareGroupOffsetsRequest(
        group, [AlterShareGroupOffsetsRequestTopic(topic, [AlterShareGroupOffsetsRequestPartition(0, 2)])]
    )
    altered = ask(broker, 91, 0, back)
    assert (altered.error_code, altered.responses[0].partitions[0].error_code) == (0, 0)
    row = where(broker, group, topic).topics[0].partitions[0]
    assert (row.start_offset, row.lag) == (2, 4)
    assert read_all(broker, group, topic, 4) == [b"2", b"3", b"4", b"5"]

    forget = DeleteShareGroupOffsetsRequest(group, [DeleteShareGroupOffsetsRequestTopic(topic)])
    assert ask(broker, 92, 0, forget).responses[0].error_code == 0
    assert where(broker, group, topic).topics[0].partitions[0].start_offset == -1
    missing = DeleteShareGroupOffsetsRequest(group, [DeleteShareGroupOffsetsRequestTopic("no-such-topic")])
    kind = ErrorKind(ask(broker, 92, 0, missing).responses[0].error_code)
    assert kind is ErrorKind.UNKNOWN_TOPIC_OR_PARTITION
    assert len(read_all(broker, group, topic, 6)) == 6, "it begins anew"


def test_f35_setting_where_a_new_group_begins_makes_it(broker: BrokerProcess, topic: str) -> None:
    group = f"g-{topic}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result()
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(6):
        producer.produce(topic, str(number).encode())
    producer.flush(120)
    find = FindCoordinatorRequest(group, 0)
    while ask(broker, 10, 2, find).error_code:
        pass
    begin = AlterShareGroupOffsetsRequest(
        group, [AlterShareGroupOffsetsRequestTopic(topic, [AlterShareGroupOffsetsRequestPartition(0, 4)])]
    )
    altered = ask(broker, 91, 0, begin)
    assert (altered.error_code, altered.responses[0].partitions[0].error_code) == (0, 0)
    (row,) = where(broker, group, topic).topics[0].partitions
    assert (row.start_offset, row.lag) == (4, 2)
    assert read_all(broker, group, topic, 2) == [b"4", b"5"]
    nameless = ask(broker, 91, 0, AlterShareGroupOffsetsRequest("", []))
    assert nameless.error_code == ErrorKind.INVALID_GROUP_ID


def test_f35_an_empty_cleanup_policy_is_accepted(broker: BrokerProcess, topic: str) -> None:
    """As in Kafka: nothing is ever taken away."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": ""})]).values():
        future.result()
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    assert described.result()["cleanup.policy"].value == ""


@pytest.mark.skipif(not hasattr(ck, "ShareConsumer"), reason="this confluent-kafka has no ShareConsumer")
def test_a_group_with_members_is_left_alone(broker: BrokerProcess, topic: str) -> None:
    group = f"g-{topic}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result()
    consumer = ck.ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    consumer.subscribe([topic])
    for _ in range(3):
        consumer.poll(timeout=0.5)
    forget = DeleteShareGroupOffsetsRequest(group, [DeleteShareGroupOffsetsRequestTopic(topic)])
    assert ErrorKind(ask(broker, 92, 0, forget).error_code) is ErrorKind.NON_EMPTY_GROUP
    consumer.close()
