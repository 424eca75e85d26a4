"""F38, decision 0082: `--sqs-regions separate` on three brokers. Whichever of them is asked, a request is of the region that signed it,
also when another broker has the queue, and after that one has died."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from webhook_endpoint import until

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import free_ports

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]

Sqs = Any
OWN, OTHER = "us-east-1", "eu-west-1"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    brokers: list[BrokerProcess] = []
    try:
        for number in (1, 2, 3):
            environment = {
                "HEADRACE_NODE_ID": str(number),
                "HEADRACE_COORDINATOR": f"sqlite://{tmp_path}/coordinator.db",
                "HEADRACE_DEFAULT_REPLICATION_FACTOR": "3",
                "HEADRACE_SQS_REGIONS": "separate",
            }
            broker = BrokerProcess(tmp_path / f"b{number}", environment=environment)
            broker.kafka_port, broker.http_port = free_ports(2)
            brokers.append(broker.start())
        yield brokers
    finally:
        for broker in brokers:
            broker.__exit__(None, None, None)


def connect(broker: BrokerProcess, region: str) -> Sqs:
    return boto3.client(
        "sqs", endpoint_url=broker.url, region_name=region, aws_access_key_id="x", aws_secret_access_key="y",
        config=Config(retries={"max_attempts": 0}, read_timeout=240),
    )  # fmt: skip


def test_f38_a_request_is_of_its_region_at_every_broker(cluster: list[BrokerProcess]) -> None:
    at = {region: [connect(broker, region) for broker in cluster] for region in (OWN, OTHER)}
    dead = {region: made(at[region][2], f"dead-{region}") for region in at}
    url = ""
    for region, (first, second, _) in at.items():
        with pytest.raises(ClientError, match="does not exist"):
            second.get_queue_url(QueueName="jobs")
        arn = f"arn:aws:sqs:{region}:000000000000:dead-{region}"
        policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": 1}}'
        url = made(first, "jobs", RedrivePolicy=policy, VisibilityTimeout="0")
        assert second.get_queue_url(QueueName="jobs")["QueueUrl"].rpartition("/")[2] == "jobs"
    path = url.partition("/000")[2]
    for region, clients in at.items():
        for number, (client, broker) in enumerate(zip(clients, cluster, strict=True)):
            client.send_message(QueueUrl=f"{broker.url}/000{path}", MessageBody=f"{region} {number}")
    for region, clients in at.items():
        seen: set[str] = set()

        def received(region: str = region, clients: list[Sqs] = clients, seen: set[str] = seen) -> bool:
            """At any broker, until each was there once and has died of it."""
            for client, broker in zip(clients, cluster, strict=True):
                found = client.receive_message(QueueUrl=f"{broker.url}/000{path}", MaxNumberOfMessages=10)
                seen.update(message["Body"] for message in found.get("Messages", []))
            return len(seen) == 3

        until(received, 120)
        assert seen == {f"{region} {number}" for number in range(3)}, "and nothing of the other region"
    cluster[0].kill()
    for region, clients in at.items():
        letters: set[str] = set()

        def read(region: str = region, client: Sqs = clients[1], letters: set[str] = letters) -> bool:
            """What died, in the dead-letter queue of its region, with one broker gone."""
            try:
                client.receive_message(QueueUrl=f"{cluster[1].url}/000{path}")
                found = client.receive_message(
                    QueueUrl=dead[region], MaxNumberOfMessages=10, VisibilityTimeout=0
                )
            except ClientError as problem:  # while leaders change
                assert problem.response["ResponseMetadata"]["HTTPStatusCode"] >= 500, problem
                return False
            letters.update(message["Body"] for message in found.get("Messages", []))
            return len(letters) == 3

        dead[region] = f"{cluster[1].url}/000000000000/dead-{region}"
        until(read, 240)
        assert letters == {f"{region} {number}" for number in range(3)}


def made(client: Sqs, name: str, **attributes: str) -> str:
    url: str = client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return url
