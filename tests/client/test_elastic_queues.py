"""A queue that gets more partitions while clients send and receive, and fewer again (Q11)."""

from __future__ import annotations

import json
import threading
import time
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pytest
from botocore.config import Config

from headrace.testing.broker_process import BrokerProcess

GROUPS = 5


def rest(broker: BrokerProcess, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = Request(broker.url + path, data, {"Content-Type": "application/json"}, method=method)
    with urlopen(request, timeout=120) as answer:
        return json.loads(answer.read() or b"null")


def sqs(broker: BrokerProcess) -> Any:
    return boto3.client(
        "sqs", endpoint_url=broker.url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y",
        config=Config(retries={"max_attempts": 0}),
    )  # fmt: skip


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_partitions_follow_the_load(broker: BrokerProcess, fifo: bool) -> None:
    name = "stretch.fifo" if fifo else "stretch"
    client = sqs(broker)
    client.create_queue(QueueName=name, Attributes={"FifoQueue": "true"} if fifo else {})
    elastic = {
        "max_partitions": 4,
        "rate": 20,
        "backlog": 1_000,
        "grow_after_ms": 500,
        "shrink_after_ms": 1_500,
    }
    changes: dict[str, Any] = {"elastic": elastic}
    if fifo:
        changes["dedup_window_ms"] = 500
    rest(broker, "PATCH", f"/api/v1/queues/{name}", changes)
    sent: list[str] = []
    got: list[tuple[str, str]] = []
    quiet = threading.Event()
    seen: set[int] = set()

    def work() -> None:
        mine = sqs(broker)
        while not quiet.is_set() or len(got) < len(sent):
            answer = mine.receive_message(
                QueueUrl=name,
                MaxNumberOfMessages=10,
                WaitTimeSeconds=1,
                MessageSystemAttributeNames=["MessageGroupId"],
            )
            messages = answer.get("Messages", [])
            got.extend((m.get("Attributes", {}).get("MessageGroupId", ""), m["Body"]) for m in messages)
            if messages:
                mine.delete_message_batch(
                    QueueUrl=name,
                    Entries=[
                        {"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)
                    ],
                )

    worker = threading.Thread(target=work)
    worker.start()
    try:
        deadline = time.monotonic() + 240
        while max(seen, default=1) < 2 and time.monotonic() < deadline:
            for _ in range(25):
                body = f"m{len(sent)}"
                options = (
                    {"MessageGroupId": f"g{len(sent) % GROUPS}", "MessageDeduplicationId": body}
                    if fifo
                    else {}
                )
                client.send_message(QueueUrl=name, MessageBody=body, **options)
                sent.append(body)
            seen.add(rest(broker, "GET", f"/api/v1/queues/{name}")["active_partitions"])
        assert max(seen) >= 2, "it grows under load"
    finally:
        quiet.set()
        worker.join(60)
    assert sorted(body for _, body in got) == sorted(sent), "nothing lost, nothing twice"
    if fifo:
        for group in range(GROUPS):
            numbers = [int(body[1:]) for of, body in got if of == f"g{group}"]
            assert numbers == sorted(numbers), "in order, also across the change (R59)"
    deadline = time.monotonic() + 240
    while (shown := rest(broker, "GET", f"/api/v1/queues/{name}"))["active_partitions"] > 1:
        assert time.monotonic() < deadline, f"it shrinks when it is idle: {shown}"
        threading.Event().wait(0.2)
    assert shown["partitions"] >= 2, "the partition is kept for the next time"
