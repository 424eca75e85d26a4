"""One Spark session and one broker for all tests of this folder: a session costs seconds, a query tenths of one."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.core.ids import TopicPartition
from headrace.spark.connection import ClusterAccess
from headrace.spark.sync_client import LATEST, SyncClient
from headrace.testing.broker_process import BrokerProcess


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                # Generous: a JVM on a busy machine is slow, and a test that hangs is still found.
                item.add_marker(pytest.mark.timeout(400))
            # One session for the folder: with xdist its tests stay in one worker.
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def java() -> None:
    if shutil.which("java") is None:
        pytest.skip("Java is missing")
    # For every JVM from here on, those of child processes too: none lives long enough to gain by its second compiler.
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from headrace.spark import register
    from headrace.spark.session import local_session

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = local_session(
        "headrace tests",
        master="local[2]",
        settings={
            "spark.local.dir": str(tmp_path_factory.mktemp("spark-local")),
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "2g",
        },
    )
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as broker:
        yield broker


@pytest.fixture(scope="session")
def client(broker: BrokerProcess) -> Iterator[SyncClient]:
    with SyncClient(ClusterAccess(broker.bootstrap)) as client:
        yield client


@pytest.fixture
def topic(client: SyncClient) -> str:
    """A fresh topic of four partitions."""
    name = f"t{uuid.uuid4().hex[:10]}"
    client.create_topic(name, 4)
    return name


@pytest.fixture(scope="session")
def publish(broker: BrokerProcess) -> Any:
    """publish(topic, numbers, partitions=4): value and key are the number, partition number % partitions."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})

    def send(topic: str, numbers: range, partitions: int = 4, **extra: Any) -> None:
        for number in numbers:
            while True:
                try:
                    producer.produce(
                        topic, str(number).encode(), str(number).encode(), number % partitions, **extra
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(120) == 0

    return send


@pytest.fixture(scope="session")
def ends(client: SyncClient) -> Any:
    """ends(topic): the end offset of every partition."""

    def look(topic: str) -> dict[int, int]:
        leaders = client.topics([topic])[topic].leaders
        found = client.list_offsets({TopicPartition(topic, one): LATEST for one in leaders})
        return {tp.partition: offset for tp, offset in found.items()}

    return look
