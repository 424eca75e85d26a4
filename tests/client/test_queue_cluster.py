"""Three brokers: any of them answers for any queue (C6), and killing the leader loses nothing that is in flight."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import free_ports


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    """Three brokers on one SQLite coordinator."""
    brokers = []
    try:
        for number in (1, 2, 3):
            broker = BrokerProcess(
                tmp_path / f"b{number}",
                environment={
                    "HEADRACE_NODE_ID": str(number),
                    "HEADRACE_COORDINATOR": f"sqlite://{tmp_path}/coordinator.db",
                    "HEADRACE_DEFAULT_REPLICATION_FACTOR": "3",
                },
                start_seconds=60,
            )
            broker.kafka_port, broker.http_port = free_ports(2)
            brokers.append(broker.start())
        yield brokers
    finally:
        for broker in brokers:
            broker.__exit__(None, None, None)


def connect(broker: BrokerProcess) -> Any:
    return boto3.client(
        "sqs", endpoint_url=broker.url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y",
        config=Config(retries={"max_attempts": 0}, read_timeout=30),
    )  # fmt: skip


def patiently(call: Callable[[], Any], seconds: float = 240.0) -> Any:
    """Again and again while there is no leader."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except (ClientError, BotoCoreError):
            if time.monotonic() > deadline:
                raise
            threading.Event().wait(0.2)


@pytest.mark.slow
def test_any_broker_answers_and_a_failover_keeps_what_is_in_flight(cluster: list[BrokerProcess]) -> None:
    clients = [connect(broker) for broker in cluster]
    patiently(lambda: clients[0].create_queue(QueueName="jobs", Attributes={"VisibilityTimeout": "8"}))
    bodies = []
    for number in range(30):
        body = f"m{number}"
        patiently(partial(clients[number % 3].send_message, QueueUrl="jobs", MessageBody=body))
        bodies.append(body)
    taken: dict[str, str] = {}
    for client in clients:
        answer = patiently(
            partial(client.receive_message, QueueUrl="jobs", MaxNumberOfMessages=5, WaitTimeSeconds=2)
        )
        taken |= {m["Body"]: m["ReceiptHandle"] for m in answer.get("Messages", [])}
    assert len(taken) == 15, "the three of them hand out different messages"
    deleted = set(list(taken)[:5])
    for place, body in enumerate(deleted):
        patiently(partial(clients[place % 3].delete_message, QueueUrl="jobs", ReceiptHandle=taken[body]))
    urls = {patiently(partial(client.get_queue_url, QueueName="jobs"))["QueueUrl"] for client in clients}
    assert len(urls) == 3, "each names itself"

    leader = _leader(cluster)
    began = time.monotonic()
    leader.kill()
    others = [connect(broker) for broker in cluster if broker is not leader]
    left: set[str] = set()
    early = []
    deadline = time.monotonic() + 240
    while left != set(bodies) - deleted and time.monotonic() < deadline:
        answer = patiently(
            lambda: others[0].receive_message(QueueUrl="jobs", MaxNumberOfMessages=10, WaitTimeSeconds=1)
        )
        for message in answer.get("Messages", []):
            if message["Body"] in taken and time.monotonic() - began < 7.5:
                early.append(message["Body"])
            left.add(message["Body"])
            others[1].delete_message(QueueUrl="jobs", ReceiptHandle=message["ReceiptHandle"])
    assert left == set(bodies) - deleted, "nothing lost, and nothing that was deleted came back"
    assert early == [], "what was in flight kept its lock (R58)"


def _leader(cluster: list[BrokerProcess]) -> BrokerProcess:
    from confluent_kafka.admin import AdminClient

    metadata = AdminClient({"bootstrap.servers": cluster[0].bootstrap}).list_topics("jobs", timeout=120)
    number = metadata.topics["jobs"].partitions[0].leader
    return cluster[number - 1]
