"""F10: a coordinator that was put back from a backup, under a running broker or between two lives: real processes, real clients."""

from __future__ import annotations

import shutil
import sqlite3
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import EtcdServer, etcd_binary

PATIENCE_S = 120.0


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    if etcd_binary() is None:
        pytest.skip("there is no etcd here")
    server = EtcdServer(tmp_path / "etcd").start()
    yield server
    server.stop()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def create(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        made.result(PATIENCE_S)


def send(broker: BrokerProcess, topic: str, values: list[str]) -> None:
    """Acknowledged, each of them."""
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": int(PATIENCE_S * 1000)})
    for value in values:
        producer.produce(
            topic,
            value,
            partition=0,
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0 and not failed, failed


def read(broker: BrokerProcess, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.value().decode())
    consumer.close()
    return found


def topics(broker: BrokerProcess) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE_S).topics)


def readiness(broker: BrokerProcess) -> str:
    with urllib.request.urlopen(f"{broker.url}/readyz?verbose", timeout=10) as answer:
        return str(answer.read().decode())


def test_f10_an_etcd_restored_from_a_backup_is_noticed_and_costs_no_record(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    """The backup does not know a topic that was made later, the life of the broker that runs, nor its leader epochs."""
    data, backup = etcd.directory / "data", tmp_path / "backup"
    environment = {"HEADRACE_COORDINATOR": f"etcd://{etcd.address}/f10", "HEADRACE_NODE_ID": "1"}
    with BrokerProcess(tmp_path / "broker", environment=environment, start_seconds=PATIENCE_S) as broker:
        create(broker, "old")
        send(broker, "old", ["1", "2"])
        etcd.stop()
        shutil.copytree(data, backup)
        etcd.start()
        for value in ("3", "4"):
            broker.kill()
            broker.start()
            send(broker, "old", [value])
        create(broker, "late")
        send(broker, "late", ["kept"])
        etcd.stop()
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        etcd.start()
        until(lambda: "it was restored from a backup" in broker.log(), "the broker did not notice")
        until(lambda: "late" not in topics(broker), "the broker goes on with what it knew")
        send(broker, "old", ["5"])
        assert read(broker, "old", 5) == ["1", "2", "3", "4", "5"]
        assert "restored from a backup" in readiness(broker)
        assert "the leader epoch is raised above" in broker.log(), "R9: no epoch is given twice"
        kept = list((tmp_path / "broker" / "quarantine").glob("late@*/0/*.log"))
        assert kept and any(b"kept" in path.read_bytes() for path in kept), "S12"


def copy_database(source: Path, target: Path) -> None:
    """As `sqlite3 target ".restore source"` does it."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


@pytest.mark.parametrize("down", [False, True])
def test_f10_an_embedded_coordinator_restored_from_a_backup_is_noticed(tmp_path: Path, down: bool) -> None:
    """`down`: put back while no broker ran. The data directory remembers how far the coordinator had been."""
    database, backup = tmp_path / "broker" / "coordinator.db", tmp_path / "backup.db"
    with BrokerProcess(tmp_path / "broker", start_seconds=PATIENCE_S) as broker:
        create(broker, "old")
        send(broker, "old", ["1", "2"])
        copy_database(database, backup)
        create(broker, "late")
        send(broker, "late", ["kept"])
        if down:
            assert broker.stop(PATIENCE_S) == 0
        copy_database(backup, database)
        if down:
            broker.start()
        until(lambda: "it was restored from a backup" in broker.log(), "the broker did not notice")
        until(lambda: "late" not in topics(broker), "the broker goes on with what it knew")
        send(broker, "old", ["3"])
        assert read(broker, "old", 3) == ["1", "2", "3"]
        assert "restored from a backup" in readiness(broker)
        kept = list((tmp_path / "broker" / "quarantine").glob("late@*/0/*.log"))
        assert kept and any(b"kept" in path.read_bytes() for path in kept), "S12"
        broker.stop(PATIENCE_S)
        broker.start()
        assert "restored from a backup" not in readiness(broker), "it is told once, and not for ever"
