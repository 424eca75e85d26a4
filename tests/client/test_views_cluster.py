"""A view on three real brokers: its readers follow the source's leaders, also when one of them is killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import free_ports

QUIET = {"log_level": 0}
RECORDS = 6_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    brokers: list[BrokerProcess] = []
    try:
        for number in (1, 2, 3):
            environment = {
                "HEADRACE_NODE_ID": str(number),
                "HEADRACE_COORDINATOR": f"sqlite://{tmp_path}/coordinator.db",
            }
            broker = BrokerProcess(tmp_path / f"b{number}", environment=environment, start_seconds=60)
            broker.kafka_port, broker.http_port = free_ports(2)
            brokers.append(broker.start())
        yield brokers
    finally:
        for broker in brokers:
            broker.__exit__(None, None, None)


@pytest.mark.slow
@pytest.mark.client
@pytest.mark.timeout(240)
def test_a_killed_leader_costs_a_reader_of_a_view_nothing(cluster: list[BrokerProcess]) -> None:
    bootstrap = ",".join(broker.bootstrap for broker in cluster)
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.create_topics([NewTopic("orders", 3, 3, config={"min.insync.replicas": "2"})])["orders"].result(60)
    view = {"headrace.view.source": "orders", "headrace.view.where": 'tag == "eu"'}
    admin.create_topics([NewTopic("eu", -1, -1, config=view)])["eu"].result(60)
    shown = admin.list_topics(timeout=120).topics
    leaders = {number: part.leader for number, part in shown["orders"].partitions.items()}
    assert {number: part.leader for number, part in shown["eu"].partitions.items()} == leaders

    refused: list[object] = []

    def publish() -> None:
        producer = ck.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **QUIET}
        )
        for number in range(RECORDS):
            tag = b"eu" if number % 10 == 3 else b"us"
            producer.produce(
                "orders", str(number), partition=number % 3, headers=[("tag", tag)],
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )  # fmt: skip
            if number % 100 == 0:
                producer.poll(0.1)
        assert producer.flush(120) == 0

    publisher = threading.Thread(target=publish)
    publisher.start()
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest", **QUIET}
    consumer = ck.Consumer(settings)
    consumer.subscribe(["eu"])
    wanted = {str(number).encode() for number in range(3, RECORDS, 10)}
    seen: dict[tuple[int, int], bytes] = {}
    killed = False
    deadline = time.monotonic() + 180
    while set(seen.values()) != wanted and time.monotonic() < deadline:
        for message in consumer.consume(200, 0.2):
            if message.error() is None:
                place = (message.partition(), message.offset())
                assert seen.setdefault(place, message.value()) == message.value()
        if not killed and len(seen) > len(wanted) // 5:
            killed = True
            cluster[leaders[0] - 1].kill()
    publisher.join()
    consumer.close()
    assert not refused and killed
    assert set(seen.values()) == wanted and len(seen) == len(wanted), "each once, at one offset"
