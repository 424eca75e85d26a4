"""What clients and administrators see of a cluster: three real brokers in three racks on one SQLite coordinator."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.broker.peer import PeerConnection
from headrace.core.errors import ErrorKind
from headrace.wire.api import ApiKey
from headrace.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

sys.path.insert(0, str(Path(__file__).parent))
from books import PRODUCER, quiet
from real_cluster import RealCluster, wait_for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with RealCluster(tmp_path_factory.mktemp("cluster"), coordinator="sqlite") as running:
        yield running


@pytest.fixture
def admin(cluster: RealCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "error_cb": quiet})


def create(admin: AdminClient, name: str, partitions: int = 1, replicas: int = 3, **config: str) -> None:
    configs = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, replicas, config=configs)])[name].result(20)


def placed(admin: AdminClient, name: str, partition: int = 0) -> tuple[int, list[int], list[int]]:
    row = admin.list_topics(name, timeout=10).topics[name].partitions[partition]
    return row.leader, list(row.replicas), sorted(row.isrs)


def produce(cluster: RealCluster, topic: str, count: int, **settings: Any) -> list[Any]:
    told: list[Any] = []
    config = {**PRODUCER, "bootstrap.servers": cluster.bootstrap, "error_cb": quiet, **settings}
    producer = ck.Producer(config)
    for number in range(count):
        producer.produce(
            topic, f"{number}", partition=0, on_delivery=lambda error, message: told.append(error)
        )
    producer.flush(30)
    return told


def ask(cluster: RealCluster, broker: int, key: int, version: int, request: object) -> Any:
    async def call() -> Any:
        place = cluster.brokers[broker]
        connection = await PeerConnection.open(place.host, place.kafka_port, "test")
        try:
            return await connection.call(key, version, request, 10)
        finally:
            connection.close()

    return asyncio.run(call())


def test_a_partition_moves_while_it_serves(cluster: RealCluster, admin: AdminClient) -> None:
    """R35: grow, catch up, shrink; any broker takes the order, and nothing is missing afterwards."""
    create(admin, "moving", replicas=1)
    assert produce(cluster, "moving", 100) == [None] * 100
    leader = placed(admin, "moving")[0]
    target = [number for number in cluster.brokers if number != leader]
    moves = [ReassignableTopic("moving", [ReassignablePartition(0, target)])]
    keeping = AlterPartitionReassignmentsRequest(allow_replication_factor_change=False, topics=moves)
    answer = ask(cluster, leader, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, keeping)
    assert answer.responses[0].partitions[0].error_code == ErrorKind.INVALID_REPLICATION_FACTOR
    request = AlterPartitionReassignmentsRequest(topics=moves)
    answer = ask(cluster, leader, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)
    assert answer.responses[0].partitions[0].error_code == 0

    def is_over() -> bool:
        listing = ask(
            cluster, leader, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest()
        )
        return not listing.topics and placed(admin, "moving")[2] == sorted(target)

    wait_for("the move", is_over, 30)
    assert placed(admin, "moving")[0] in target
    assert read(cluster, "moving", 100) == [f"{number}" for number in range(100)]


def read(cluster: RealCluster, topic: str, count: int, **settings: Any) -> list[str]:
    consumer = ck.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0,
         "auto.offset.reset": "earliest", "error_cb": quiet, **settings}
    )  # fmt: skip
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    found: list[str] = []
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        found += [
            message.value().decode() for message in consumer.consume(500, 0.5) if message.error() is None
        ]
    consumer.close()
    return found


def test_consumers_read_from_the_replica_in_their_rack(cluster: RealCluster, admin: AdminClient) -> None:
    """KIP-392: the leader sends a consumer to a follower nearby."""
    create(admin, "near")
    assert produce(cluster, "near", 50) == [None] * 50
    leader = placed(admin, "near")[0]
    follower = next(number for number in cluster.brokers if number != leader)
    before = fetched(cluster, follower)
    assert len(read(cluster, "near", 50, **{"client.rack": f"rack{follower}"})) == 50
    assert fetched(cluster, follower) > before


def fetched(cluster: RealCluster, broker: int) -> float:
    """Bytes that this broker has sent to whoever fetched."""
    import urllib.request

    place = cluster.brokers[broker]
    with urllib.request.urlopen(f"http://{place.host}:{place.http_port}/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if "bytesout" in line.lower().replace("_", "") and 'topic="near"' in line and not line.startswith("#")
    )


def test_followers_send_clients_to_the_leader(cluster: RealCluster, admin: AdminClient) -> None:
    """ListOffsets and DeleteRecords are the leader's business; what it deletes is gone everywhere."""
    create(admin, "led")
    assert produce(cluster, "led", 30) == [None] * 30
    leader = placed(admin, "led")[0]
    follower = next(number for number in cluster.brokers if number != leader)
    offsets = ListOffsetsRequest(topics=[ListOffsetsTopic("led", [ListOffsetsPartition(0, -1, -1)])])
    refused = ask(cluster, follower, ApiKey.LIST_OFFSETS, 5, offsets)
    assert refused.topics[0].partitions[0].error_code == ErrorKind.NOT_LEADER_OR_FOLLOWER
    deletion = DeleteRecordsRequest([DeleteRecordsTopic("led", [DeleteRecordsPartition(0, 10)])], 5_000)
    refused = ask(cluster, follower, ApiKey.DELETE_RECORDS, 2, deletion)
    assert refused.topics[0].partitions[0].error_code == ErrorKind.NOT_LEADER_OR_FOLLOWER
    done = ask(cluster, leader, ApiKey.DELETE_RECORDS, 2, deletion)
    assert (done.topics[0].partitions[0].error_code, done.topics[0].partitions[0].low_watermark) == (0, 10)
    nearby = {"client.rack": f"rack{follower}"}
    wait_for("the follower", lambda: read(cluster, "led", 20, **nearby)[0] == "10", 20)


def test_groups_are_found_wherever_they_are(cluster: RealCluster, admin: AdminClient) -> None:
    create(admin, "grouped", partitions=3)
    for group in ("g1", "g2", "g3", "g4"):
        consumer = ck.Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0, "error_cb": quiet}
        )
        consumer.commit(offsets=[ck.TopicPartition("grouped", 0, 5)], asynchronous=False)
        consumer.close()
    listed = {row.group_id for row in admin.list_consumer_groups(request_timeout=10).result().valid}
    assert {"g1", "g2", "g3", "g4"} <= listed
    described = admin.describe_consumer_groups(["g1", "g2", "g3", "g4"], request_timeout=10)
    assert {future.result().group_id for future in described.values()} == {"g1", "g2", "g3", "g4"}
    assert len({future.result().coordinator.id for future in described.values()}) > 1, "spread over brokers"


def test_kraft_tools_see_a_quorum(cluster: RealCluster) -> None:
    request = DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])])
    answers = [ask(cluster, number, ApiKey.DESCRIBE_QUORUM, 1, request) for number in cluster.brokers]
    leaders = {answer.topics[0].partitions[0].leader_id for answer in answers}
    assert len(leaders) == 1 and leaders <= set(cluster.brokers)
    voters = {voter.replica_id for voter in answers[0].topics[0].partitions[0].current_voters}
    assert voters == set(cluster.brokers)


def test_too_few_replicas_refuse_and_leaders_come_home(cluster: RealCluster, admin: AdminClient) -> None:
    """R17: NOT_ENOUGH_REPLICAS with one copy left. min.insync.racks counts racks. R32: leaderships drift back."""
    create(admin, "strict", min_insync_replicas="2")
    create(admin, "racks", min_insync_racks="3")
    assert produce(cluster, "strict", 5) == [None] * 5
    assert produce(cluster, "racks", 5) == [None] * 5
    leader, replicas, _ = placed(admin, "strict")
    assert leader == replicas[0]
    others = [number for number in cluster.brokers if number != leader]
    impatient = {"message.timeout.ms": 4_000, "enable.idempotence": False, "retries": 0}
    cluster.brokers[others[0]].kill()
    wait_for("one gone", lambda: len(placed(admin, "strict")[2]) == 2, 20)
    assert produce(cluster, "strict", 5) == [None] * 5
    refused = {error.code() for error in produce(cluster, "racks", 1, **impatient) if error}
    assert refused & {ck.KafkaError.NOT_ENOUGH_REPLICAS, ck.KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
    cluster.brokers[others[1]].kill()
    wait_for("two gone", lambda: len(placed(admin, "strict")[2]) == 1, 20)
    refused = {error.code() for error in produce(cluster, "strict", 1, **impatient) if error}
    assert refused & {ck.KafkaError.NOT_ENOUGH_REPLICAS, ck.KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
    for number in others:
        cluster.brokers[number].start()
    wait_for("all back", lambda: len(placed(admin, "strict")[2]) == 3, 30)
    assert produce(cluster, "racks", 1) == [None]
    cluster.brokers[leader].stop()
    assert placed(admin, "strict")[0] != leader
    cluster.brokers[leader].start()
    wait_for("the leader home again", lambda: placed(admin, "strict")[0] == leader, 60)
