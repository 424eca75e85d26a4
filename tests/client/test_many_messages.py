"""F79, F80: many messages in few requests, and nothing that a message asks for is forgotten in silence."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request

import boto3
import pytest
from botocore.exceptions import ClientError

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

MESSAGES = 3_000


def cli(broker: BrokerProcess, *arguments: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace", *arguments, "--url", broker.url, "--timeout", "60s"]
    return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=200)


def requests_so_far(broker: BrokerProcess) -> int:
    with urllib.request.urlopen(f"{broker.url}/metrics", timeout=60) as answered:
        text = answered.read().decode()
    return sum(int(count) for count in re.findall(r"^mq_http_responses_total{.*} (\d+)$", text, re.M))


def test_f79_lines_are_sent_in_batches(broker: BrokerProcess, topic: str) -> None:
    before = requests_so_far(broker)
    sent = cli(broker, "queue", "send", topic, lines="".join(f"m{n}\n" for n in range(MESSAGES)))
    assert sent.returncode == 0, sent.stderr
    assert requests_so_far(broker) - before < 20
    assert sent.stdout == "" and "Sent 3 000 messages" in sent.stderr
    sqs = boto3.client(
        "sqs", endpoint_url=broker.url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
    )  # fmt: skip
    url = sqs.get_queue_url(QueueName=topic)["QueueUrl"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    assert found["Attributes"]["ApproximateNumberOfMessages"] == str(MESSAGES)


def test_f80_a_queue_that_keeps_no_priorities_says_so(broker: BrokerProcess, topic: str) -> None:
    assert cli(broker, "queue", "create", topic).returncode == 0
    for flags, setting in ((("--priority", "9"), "--priorities"), (("--ttl", "5s"), "--ttl")):
        refused = cli(broker, "queue", "send", topic, "x", *flags)
        assert refused.returncode == 2
        assert f"headrace queue set {topic} {setting}" in refused.stderr, refused.stderr
        changed = cli(broker, "queue", "set", topic, setting)
        assert changed.returncode == 0, changed.stderr
        assert cli(broker, "queue", "send", topic, "x", *flags).returncode == 0


def test_f80_a_rate_that_can_not_be_kept_is_refused(broker: BrokerProcess, topic: str) -> None:
    """`--rate 30/m` was rounded to none at all, and everything moved at once."""
    assert cli(broker, "queue", "create", topic).returncode == 0
    refused = cli(broker, "dlq", "redrive", topic, "--rate", "30/m")
    assert refused.returncode == 2 and "not at 0.5" in refused.stderr, refused.stderr


def test_f80_a_queue_made_by_its_first_message_keeps_what_that_asks_for(
    broker: BrokerProcess, topic: str
) -> None:
    assert cli(broker, "queue", "send", topic, "low", "--priority", "1", "--ttl", "1d").returncode == 0
    assert cli(broker, "queue", "send", topic, "high", "--priority", "9").returncode == 0
    received = cli(broker, "queue", "receive", topic, "--ack", "--json")
    assert '"value":"high"' in received.stdout, received.stdout


def test_f80_sqs_refuses_headers_that_would_mean_nothing_there(broker: BrokerProcess, topic: str) -> None:
    """A priority is no attribute of SQS: whoever writes one hears of it, in a batch too."""
    sqs = boto3.client(
        "sqs", endpoint_url=broker.url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
    )  # fmt: skip
    url = sqs.create_queue(QueueName=topic)["QueueUrl"]
    for name in ("headrace-priority", "headrace-ttl-ms", "Headrace-Delay-Ms"):
        wanted = {name: {"DataType": "String", "StringValue": "9"}}
        with pytest.raises(ClientError, match=f"'{name}' is invalid"):
            sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=wanted)
        entry = {"Id": "a", "MessageBody": "x", "MessageAttributes": wanted}
        (failed,) = sqs.send_message_batch(QueueUrl=url, Entries=[entry])["Failed"]
        assert name in failed["Message"]
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
