"""Priority, expiry, fairness, aborted transactions and metrics of queues, from a client's side (Q6, Q8)."""

from __future__ import annotations

import json
import threading
import time
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import boto3
import confluent_kafka as ck
import pytest

from headrace.testing.broker_process import BrokerProcess


def rest(broker: BrokerProcess, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = Request(broker.url + path, data, {"Content-Type": "application/json"}, method=method)
    with urlopen(request, timeout=120) as answer:
        return json.loads(answer.read() or b"null")


def sqs(broker: BrokerProcess) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=broker.url,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="y",
    )


def publish(broker: BrokerProcess, topic: str, messages: list[tuple[bytes, dict[str, bytes]]]) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for value, headers in messages:
        producer.produce(topic, value, headers=list(headers.items()))
    assert producer.flush(120) == 0


def receive(broker: BrokerProcess, queue: str, count: int = 10, wait: str = "0s") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rest(broker, "POST", f"/queues/{queue}/receive?max={count}&wait={wait}")[
        "items"
    ]
    return found


def wait_for(broker: BrokerProcess, queue: str, **wanted: int) -> dict[str, Any]:
    deadline = time.monotonic() + 240
    while True:
        shown: dict[str, Any] = rest(broker, "GET", f"/api/v1/queues/{queue}")
        if all(shown[name] == value for name, value in wanted.items()):
            return shown
        assert time.monotonic() < deadline, shown
        threading.Event().wait(0.05)


def test_a_queue_says_what_is_wrong_with_its_making(broker: BrokerProcess) -> None:
    def refused(method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        with pytest.raises(HTTPError) as problem:
            rest(broker, method, path, body)
        assert problem.value.code == 400
        said: dict[str, Any] = json.loads(problem.value.read())
        return said

    queues = "/api/v1/queues"
    said = refused("POST", queues, {"name": "made", "visibilty_ms": 5})
    assert "visibilty_ms" in said["detail"] and "visibility_ms" in said["hint"]
    assert "a-z A-Z" in refused("POST", queues, {"name": "no spaces"})["detail"]
    for wrong in (
        {"visibility_ms": "5"}, {"visibility_ms": True}, {"max_deliveries": -1}, {"fair": 1}, {"tags": {"a": 1}}, {"partitions": 0}, {"start": "now"},
        {"elastic": {"rate": 5}}, {"elastic": {"max_partitions": 0}}, {"elastic": {"max_partitions": 4, "speed": 1}}, {"backoff": {"multiplier": 0.5}},
        {"backoff": {"first_ms": 1}}, {"topics": "orders"},
    ):  # fmt: skip
        refused("POST", queues, {"name": "made", **wrong})
    made = rest(
        broker,
        "POST",
        queues,
        {"name": "made", "backoff": {"initial_ms": 5}, "elastic": {"max_partitions": 4}, "window": 9},
    )
    config = made["config"]
    assert (config["backoff"]["initial_ms"], config["backoff"]["max_ms"], config["window"]) == (5, 600_000, 9)
    assert (made["elastic"]["max_partitions"], made["start"], made["fifo"]) == (4, "earliest", False)
    path = f"{queues}/made"
    refused("PATCH", path, {"name": "another"})
    changed = rest(broker, "PATCH", path, {"backoff": None, "elastic": None, "max_deliveries": 3})
    assert (changed["config"]["backoff"], changed["elastic"]) == (None, None)
    assert (changed["max_deliveries"], changed["config"]["window"]) == (3, 9), "what is left out stays"
    assert "has topics" in refused("POST", "/api/v1/subscriptions", {"name": "s", "topics": ["s"]})["detail"]
    subscription = rest(broker, "POST", "/api/v1/subscriptions", {"name": "s.fifo", "topics": ["made"]})
    assert (subscription["start"], subscription["fifo"], subscription["kind"]) == (
        "latest",
        True,
        "subscription",
    )


def test_a_high_priority_overtakes_a_backlog(broker: BrokerProcess) -> None:
    rest(broker, "POST", "/api/v1/queues", {"name": "prio", "priorities": True})
    publish(broker, "prio", [(b"low", {"headrace-priority": b"1"})] * 5_000)
    publish(broker, "prio", [(b"plain", {}), (b"high", {"headrace-priority": b"9"})])
    wait_for(broker, "prio", ready=5_002)
    assert [row["value"] for row in receive(broker, "prio", 4)] == ["high", "plain", "low", "low"]


def test_what_has_expired_is_never_delivered(broker: BrokerProcess) -> None:
    rest(broker, "POST", "/api/v1/queues", {"name": "mayfly", "ttl": True})
    publish(
        broker,
        "mayfly",
        [(b"short", {"headrace-ttl-ms": b"200"})] * 50 + [(b"long", {"headrace-ttl-ms": b"600000"})],
    )
    publish(broker, "mayfly", [(b"forever", {})])
    shown = wait_for(broker, "mayfly", ready=2)
    assert shown["in_flight"] == 0
    assert sorted(row["value"] for row in receive(broker, "mayfly", 100)) == ["forever", "long"]


def test_a_noisy_tenant_does_not_make_the_others_wait(broker: BrokerProcess) -> None:
    """SQS fair queues: MessageGroupId on a standard queue is the tenant."""
    client = sqs(broker)
    client.create_queue(QueueName="fair")
    publish(broker, "fair", [(b"noisy", {"headrace-group": b"noisy"})] * 2_000)
    for tenant in range(10):
        entries = [
            {"Id": str(n), "MessageBody": f"{tenant}.{n}", "MessageGroupId": f"tenant{tenant}"}
            for n in range(3)
        ]
        assert not client.send_message_batch(QueueUrl="fair", Entries=entries).get("Failed")
    wait_for(broker, "fair", ready=2_030)
    first: list[str] = []
    for _ in range(4):
        first += [
            m["Body"] for m in client.receive_message(QueueUrl="fair", MaxNumberOfMessages=10)["Messages"]
        ]
    assert sum(1 for body in first if body != "noisy") == 30, (
        "they are through before the noisy one has had its turns"
    )
    assert "noisy" in first, "who is nevertheless served"


def test_an_aborted_transaction_is_no_message(broker: BrokerProcess) -> None:
    """R48: what kcat with read_committed does not see, boto3 does not receive."""
    client = sqs(broker)
    client.create_queue(QueueName="doubtful")
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "doubtful"})
    producer.init_transactions(20)
    for value in (b"aborted", b"committed"):
        producer.begin_transaction()
        producer.produce("doubtful", value)
        producer.flush(120)
        (producer.abort_transaction if value == b"aborted" else producer.commit_transaction)(20)
    found: list[str] = []
    for _ in range(2):
        answer = client.receive_message(QueueUrl="doubtful", MaxNumberOfMessages=10, WaitTimeSeconds=1)
        found += [message["Body"] for message in answer.get("Messages", ())]
    assert found == ["committed"]
    wait_for(broker, "doubtful", ready=0, in_flight=1)


def test_metrics_of_a_queue(broker: BrokerProcess) -> None:
    client = sqs(broker)
    client.create_queue(QueueName="measured")
    for number in range(3):
        client.send_message(
            QueueUrl="measured", MessageBody=str(number), DelaySeconds=600 if number == 2 else 0
        )
    client.receive_message(QueueUrl="measured")
    wait_for(broker, "measured", ready=1, in_flight=1, delayed=1)
    with urlopen(broker.url + "/metrics", timeout=120) as answer:
        text = answer.read().decode()
    values = {
        state: next(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith("mq_queue_messages{")
            and 'queue="measured"' in line
            and f'state="{state}"' in line
        )
        for state in ("ready", "inflight", "delayed")
    }
    assert values == {"ready": 1, "inflight": 1, "delayed": 1}
    oldest = next(
        line for line in text.splitlines() if line.startswith('mq_queue_oldest_age_seconds{queue="measured"')
    )
    assert float(oldest.rsplit(" ", 1)[1]) >= 0
