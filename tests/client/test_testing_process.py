"""A broker with a clock and faults for tests in other languages: a process, and JSON over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

pytestmark = pytest.mark.client


class Elsewhere:
    """What a test in another language has: a pipe to read a line from, and HTTP."""

    def __init__(self, *settings: str) -> None:
        command = [sys.executable, "-m", "headrace.testing", *settings]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.ready: dict[str, Any] = json.loads(self.process.stdout.readline())

    def control(self, path: str, kind: str = "application/json", **given: Any) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(
            f"{self.ready['control']}/{path}",
            json.dumps(given).encode(),
            {"Content-Type": kind},
            method="POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as problem:
            return problem.code, json.load(problem)


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    running = Elsewhere("num_partitions=2")
    yield running
    running.process.kill()
    with running.process:
        pass


def test_the_clock_and_a_fault_from_outside(elsewhere: Elsewhere) -> None:
    sqs = boto3.client(
        "sqs",
        endpoint_url=elsewhere.ready["url"],
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    url = sqs.create_queue(QueueName="jobs", Attributes={"VisibilityTimeout": "43200"})["QueueUrl"]
    assert elsewhere.control("faults/lose_answers", count=1, door="http")[0] == 200
    sqs.send_message(QueueUrl=url, MessageBody="work")  # boto3 has tried twice
    assert len(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20)["Messages"]) == 2
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    status, told = elsewhere.control("clock/advance", hours=12)
    assert status == 200 and told["now"]
    assert len(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]) == 2


def test_mistakes_have_words(elsewhere: Elsewhere) -> None:
    status, told = elsewhere.control("clock/rewind")
    assert status == 404 and "clock/advance" in told["detail"]
    assert elsewhere.control("clock/advance", fortnights=1)[0] == 400
    assert elsewhere.control("faults/cut", door="amqp")[0] == 400
    assert elsewhere.control("clock/advance", kind="text/plain", hours=1)[0] == 415


def test_it_ends_with_whoever_started_it(elsewhere: Elsewhere) -> None:
    assert elsewhere.process.stdin is not None
    elsewhere.process.stdin.close()
    assert elsewhere.process.wait(120) == 0
