"""One broker, and a client at each of its doors, with nothing but the installed package and boto3: what scripts/python-versions runs under each Python."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import boto3

from headrace import Client
from headrace.testing import BrokerProcess, LocalBroker


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder) / "data") as broker:
        url = f"http://127.0.0.1:{broker.http_port}"
        with Client(broker.bootstrap) as client:
            client.publish("orders", {"id": 7}, key="7").result(120)
        broker.kill()
        broker.start()
        with Client(broker.bootstrap) as client:
            (message,) = client.subscribe("orders", follow=False)
            assert message.json() == {"id": 7}

        access = {"aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": "us-east-1"}
        sqs = boto3.client("sqs", endpoint_url=url, **access)
        queue = sqs.create_queue(QueueName="jobs")["QueueUrl"]
        sqs.send_message(QueueUrl=queue, MessageBody="mow the lawn")
        (job,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20)["Messages"]
        assert job["Body"] == "mow the lawn"
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=job["ReceiptHandle"])

        with urllib.request.urlopen(f"{url}/api/v1/topics/orders") as answer:
            assert json.load(answer)["name"] == "orders"

        headrace = Path(sys.executable).parent / "headrace"
        command = [str(headrace), "topic", "consume", "orders", "-b", broker.bootstrap]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        assert shown.stdout == '{"id":7}\n', shown

    with LocalBroker() as local:
        local.create_queue("nightly", visibility_ms=12 * 3_600_000)
        sqs = boto3.client("sqs", **local.aws)
        queue = local.queue_url("nightly")
        sqs.send_message(QueueUrl=queue, MessageBody="once")
        assert len(sqs.receive_message(QueueUrl=queue)["Messages"]) == 1
        local.clock.advance(hours=12)
        assert len(sqs.receive_message(QueueUrl=queue)["Messages"]) == 1
    print(f"the doors answer under Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
