"""A62: a quota is of whoever has logged in, and REST, SQS and Kafka fill the same bucket."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType
from quota_requests import alter
from raw_client import RawClient
from sasl_clients import librdkafka
from secured import ADMIN, PASSWORD, Secured
from webhook_endpoint import until

from headrace.cli.user_view import scram_records
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

SLOW = 2_000.0
"""Bytes a second: one body of BIG bytes is most of a minute's worth."""
BIG = "x" * 100_000


def test_a62_a_users_quota_counts_at_every_door() -> None:
    with BrokerProcess() as broker:
        with RawClient(broker.kafka_port) as raw:
            assert alter(raw, {"user": "greedy"}, producer_byte_rate=SLOW, consumer_byte_rate=SLOW) == 0
        world = Secured(broker)
        world.topic("orders")
        for name in ("greedy", "modest"):
            world.ask("POST", "/users", {"name": name, "scram": scram_records("a word", 4096)})
            world.allow(name, AclOperation.ALL, ResourceType.TOPIC, "orders")

        def post(user: str) -> tuple[int, Any]:
            return world.http("POST", "/topics/orders/records", {"value": BIG}, user=user, password="a word")

        assert post("greedy")[0] == 201, "what overdraws is carried out"
        status, said = post("greedy")
        assert (status, said["code"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        status, said = world.http(
            "GET", "/topics/orders/records?offset=start", user="greedy", password="a word"
        )
        assert status == 429, "one user, one debt"
        assert post("modest")[0] == 201 and post("modest")[0] == 201
        assert world.http("GET", "/api/v1/topics", user=ADMIN, password=PASSWORD)[0] == 200

        # The debt is the user's, not the door's: Kafka tells it at once.
        def throttled(user: str) -> list[float]:
            told: list[float] = []
            settings = librdkafka(world.login(user, "a word"))
            producer = Producer({**settings, "throttle_cb": lambda event: told.append(event.throttle_time)})
            producer.produce("orders", b"a word")
            assert producer.flush(60) == 0
            return told

        assert throttled("greedy") and max(throttled("greedy")) > 1
        assert throttled("modest") == []


def test_a62_without_logins_everybody_is_anonymous_and_sqs_clients_understand() -> None:
    with BrokerProcess() as broker:
        once = Config(retries={"max_attempts": 1, "mode": "standard"})
        sqs = boto3.client(
            "sqs", endpoint_url=broker.url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y", config=once
        )  # fmt: skip
        url = sqs.create_queue(QueueName="jobs")["QueueUrl"]
        kept = sqs.create_queue(QueueName="kept")["QueueUrl"]
        sqs.send_message(QueueUrl=kept, MessageBody="before there was a quota")
        with RawClient(broker.kafka_port) as raw:
            assert alter(raw, {"user": "ANONYMOUS"}, producer_byte_rate=SLOW) == 0
        with urllib.request.urlopen(broker.url + "/api/v1/queues/kept/export", timeout=60) as export:
            assert len(export.read().splitlines()) == 1, "what is streamed is counted, and whole"
        sqs.send_message(QueueUrl=url, MessageBody=BIG)
        with pytest.raises(ClientError) as refused:
            sqs.send_message(QueueUrl=url, MessageBody="one more")
        assert refused.value.response["Error"]["Code"] == "RequestThrottled"

        request = urllib.request.Request(f"{broker.url}/topics/jobs/records", b"by hand")
        with pytest.raises(urllib.error.HTTPError) as answer:
            urllib.request.urlopen(request, timeout=60)
        assert answer.value.code == 429 and int(answer.value.headers["retry-after"]) > 1

        # Changing a quota is no way out of a debt, but a debt is paid at the new rate.
        with RawClient(broker.kafka_port) as raw:
            assert alter(raw, {"user": "ANONYMOUS"}, producer_byte_rate=10_000_000.0) == 0

        def sent() -> bool:
            try:
                return "MessageId" in sqs.send_message(QueueUrl=url, MessageBody="one more")
            except ClientError as throttled:
                assert throttled.response["Error"]["Code"] == "RequestThrottled"
                return False

        until(sent, 120)
        got = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
        assert got[0]["Body"] in (BIG, "one more")
