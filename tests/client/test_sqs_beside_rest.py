"""One queue at two doors: what SQS sets leaves alone what only REST has words for, and shows what REST has set."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import boto3
import pytest

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client


def ask(broker: BrokerProcess, method: str, path: str, body: Any = None) -> Any:
    raw = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        broker.url + path, raw, {"content-type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = answer.read()
    return json.loads(found) if found else None


def sqs_of(broker: BrokerProcess) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=broker.url,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="y",
    )


def test_what_sqs_does_not_name_stays(broker: BrokerProcess, topic: str) -> None:
    ask(broker, "POST", "/api/v1/queues", {"name": f"{topic}-dead"})
    settings = {
        "visibility_ms": 45_000, "default_delay_ms": 2_000, "priorities": True, "fair": False, "ttl": True,
        "max_deliveries": 4, "dead_letter": f"{topic}-dead", "dead_letter_expired": True, "filter": "tag = 'a'",
    }  # fmt: skip
    ask(broker, "POST", "/api/v1/queues", {"name": topic, **settings})
    before = ask(broker, "GET", f"/api/v1/queues/{topic}")
    sqs = sqs_of(broker)
    url = sqs.get_queue_url(QueueName=topic)["QueueUrl"]

    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (shown["VisibilityTimeout"], shown["DelaySeconds"]) == ("45", "2")
    policy = json.loads(shown["RedrivePolicy"])
    assert policy["deadLetterTargetArn"].endswith(f":{topic}-dead") and int(policy["maxReceiveCount"]) == 4

    sqs.set_queue_attributes(QueueUrl=url, Attributes={"ReceiveMessageWaitTimeSeconds": "5"})
    assert ask(broker, "GET", f"/api/v1/queues/{topic}") == before, "nothing of it was named"
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "60"})
    after = ask(broker, "GET", f"/api/v1/queues/{topic}")
    assert after["visibility_ms"] == 60_000
    changed = {name for name in after if after[name] != before[name]}
    assert changed <= {"visibility_ms", "config"}
    assert {name for name in after["config"] if after["config"][name] != before["config"][name]} <= {
        "visibility_ms"
    }


def test_what_rest_sets_is_shown_by_sqs(broker: BrokerProcess, topic: str) -> None:
    sqs = sqs_of(broker)
    dead = sqs.create_queue(QueueName=f"{topic}-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "3"})
    url = sqs.create_queue(QueueName=topic, Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "10"})[
        "QueueUrl"
    ]
    ask(broker, "PATCH", f"/api/v1/queues/{topic}", {"visibility_ms": 20_000, "max_deliveries": 7})
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert shown["VisibilityTimeout"] == "20"
    assert json.loads(shown["RedrivePolicy"])["maxReceiveCount"] == 7
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert ask(broker, "GET", f"/api/v1/queues/{topic}")["dead_letter"] in (None, "")
