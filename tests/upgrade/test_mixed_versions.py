"""A cluster of two versions: brokers of an older commit and of this tree, while somebody goes round (docs/operations.md, Upgrades).

The older sources come out of the repository's own history, so a copy without it (an archive, a shallow clone) skips this and says so."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import boto3
import confluent_kafka as ck
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import free_ports

pytestmark = [pytest.mark.client, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
OLDER = os.environ.get("HEADRACE_OLDER", "0042384")
"""The version before this one: what brokers of this tree must get on with. It moves when a version is released, and not otherwise."""
RECORDS = 40
"""So many between one step and the next."""


@pytest.fixture(scope="module")
def older_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = subprocess.run(["git", "archive", OLDER, "src"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the history of this copy does not reach back to {OLDER}: git fetch --unshallow gets it")
    home = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(home, filter="data")
    found = subprocess.run(
        [sys.executable, "-c", "import headrace; print(headrace.__file__)"],
        env={**os.environ, "PYTHONPATH": str(home / "src")}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert found.startswith(str(home)), f"the older brokers would be of this tree: {found}"
    return home / "src"


class Cluster:
    """Three brokers on one SQLite coordinator, each of either version."""

    def __init__(self, home: Path, older: Path) -> None:
        self._home, self._older = home, older
        self.brokers: dict[int, BrokerProcess] = {}

    def start(self, number: int, *, old: bool) -> None:
        before = self.brokers.get(number)
        environment = {
            "HEADRACE_NODE_ID": str(number),
            "HEADRACE_COORDINATOR": f"sqlite://{self._home}/coordinator.db",
            "HEADRACE_DEFAULT_REPLICATION_FACTOR": "3",
        }
        if old:
            environment["PYTHONPATH"] = str(self._older)
        broker = BrokerProcess(self._home / f"b{number}", environment=environment)
        broker.kafka_port, broker.http_port = (
            (before.kafka_port, before.http_port) if before else free_ports(2)
        )
        self.brokers[number] = broker.start()

    def replace(self, number: int, *, old: bool) -> None:
        """As somebody who goes round: stop it, start it in the other version, wait until everything is in sync again."""
        self.brokers[number].stop(120)
        self.start(number, old=old)
        patiently(self.is_whole)

    def is_whole(self) -> None:
        partitions = self.metadata().topics["orders"].partitions.values()
        if not all(len(partition.isrs) == 3 for partition in partitions):
            raise NotYet(str([partition.isrs for partition in partitions]))

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def metadata(self) -> Any:
        return AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=60)

    def leaders(self, topic: str) -> set[int]:
        return {partition.leader for partition in self.metadata().topics[topic].partitions.values()}

    def sqs(self, number: int) -> Any:
        return boto3.client(
            "sqs", endpoint_url=self.brokers[number].url, region_name="us-east-1", aws_access_key_id="x",
            aws_secret_access_key="y", config=Config(retries={"max_attempts": 0}, read_timeout=60),
        )  # fmt: skip

    def leave(self) -> None:
        for broker in self.brokers.values():
            broker.__exit__(None, None, None)


class NotYet(Exception):
    """Asked again."""


def patiently(call: Callable[[], Any]) -> Any:
    """Again and again while leadership moves."""
    deadline = time.monotonic() + 240
    while True:
        try:
            return call()
        except (ClientError, BotoCoreError, ck.KafkaException, NotYet):
            if time.monotonic() > deadline:
                raise
            threading.Event().wait(0.2)


@pytest.fixture
def cluster(tmp_path: Path, older_sources: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, older_sources)
    try:
        for number in (1, 2, 3):
            made.start(number, old=True)
        yield made
    finally:
        made.leave()


class Traffic:
    """What was sent and must come, at both doors."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.sent: list[str] = []
        self.jobs: set[str] = set()
        self.done: set[str] = set()

    def step(self) -> None:
        self._produce()
        self._send_jobs()
        self._redeem_elsewhere()

    def _produce(self) -> None:
        """With acks=all, so what is not refused is on all three of them."""
        refused: list[Any] = []
        producer = ck.Producer({"bootstrap.servers": self._cluster.bootstrap, "enable.idempotence": True})
        for _ in range(RECORDS):
            value = f"order {len(self.sent)}"
            producer.produce(
                "orders", value, key=value, on_delivery=lambda error, _: error and refused.append(error)
            )
            self.sent.append(value)
        assert producer.flush(240) == 0 and not refused, refused

    def _send_jobs(self) -> None:
        """Through each of them, whoever has the queue."""
        for number in self._cluster.brokers:
            for _ in range(3):
                body = f"job {len(self.jobs)}"
                patiently(partial(self._cluster.sqs(number).send_message, QueueUrl="jobs", MessageBody=body))
                self.jobs.add(body)

    def _redeem_elsewhere(self) -> None:
        """Each receipt is given out by one broker and redeemed at another."""
        for number in self._cluster.brokers:
            client, other = self._cluster.sqs(number), self._cluster.sqs(number % 3 + 1)
            answer = patiently(
                partial(
                    client.receive_message,
                    QueueUrl="jobs",
                    MaxNumberOfMessages=2,
                    WaitTimeSeconds=20,
                    VisibilityTimeout=600,
                )
            )
            assert answer.get("Messages"), f"broker {number} has no job to give"
            for message in answer["Messages"]:
                assert message["Body"] in self.jobs - self.done, message["Body"]
                patiently(
                    partial(other.delete_message, QueueUrl="jobs", ReceiptHandle=message["ReceiptHandle"])
                )
                self.done.add(message["Body"])

    def take_the_rest(self) -> None:
        client = self._cluster.sqs(1)
        deadline = time.monotonic() + 240
        while self.done != self.jobs:
            assert time.monotonic() < deadline, f"never came: {self.jobs - self.done}"
            answer = patiently(
                lambda: client.receive_message(QueueUrl="jobs", MaxNumberOfMessages=10, WaitTimeSeconds=5)
            )
            for message in answer.get("Messages", []):
                assert message["Body"] in self.jobs - self.done, f"came again: {message['Body']}"
                patiently(
                    partial(client.delete_message, QueueUrl="jobs", ReceiptHandle=message["ReceiptHandle"])
                )
                self.done.add(message["Body"])

    def read_everything(self) -> None:
        consumer = ck.Consumer(
            {"bootstrap.servers": self._cluster.bootstrap, "group.id": "all", "auto.offset.reset": "earliest"}
        )
        try:
            consumer.subscribe(["orders"])
            found: list[str] = []
            deadline = time.monotonic() + 240
            while len(found) < len(self.sent):
                assert time.monotonic() < deadline, f"{len(found)} of {len(self.sent)}"
                message = consumer.poll(1)
                if message is not None and message.error() is None:
                    found.append(message.value().decode())
            assert sorted(found) == sorted(self.sent)
        finally:
            consumer.close()


def test_a_cluster_goes_from_one_version_to_the_next_with_nothing_lost(cluster: Cluster) -> None:
    """One after the other, with both doors in use between the steps; a receipt of the first step is redeemed after the last."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (made,) = admin.create_topics([NewTopic("orders", 3, 3)]).values()
    made.result(60)
    patiently(cluster.is_whole)
    patiently(lambda: cluster.sqs(1).create_queue(QueueName="jobs", Attributes={"VisibilityTimeout": "600"}))
    traffic = Traffic(cluster)
    patiently(lambda: cluster.sqs(2).send_message(QueueUrl="jobs", MessageBody="long job"))
    answer = patiently(lambda: cluster.sqs(3).receive_message(QueueUrl="jobs", WaitTimeSeconds=20))
    (long_job,) = answer["Messages"]

    traffic.step()
    led: set[int] = set()
    for number, old in ((1, False), (2, False), (2, True), (2, False), (3, False)):
        # What this broker leads goes to the others, of whichever version they are.
        cluster.replace(number, old=old)
        traffic.step()
        led |= cluster.leaders("orders") | cluster.leaders("jobs")
    assert len(led) > 1, "leadership has moved"

    patiently(lambda: cluster.sqs(1).delete_message(QueueUrl="jobs", ReceiptHandle=long_job["ReceiptHandle"]))
    traffic.take_the_rest()
    traffic.read_everything()
