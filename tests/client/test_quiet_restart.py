"""F53: a broker that is restarted beneath its clients makes no noise: not in its own log, not in theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from confluent_kafka import Consumer, Producer
from webhook_endpoint import until

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

SUBSCRIBER = """
import sys
from headrace import Client
with Client(sys.argv[1]) as client:
    for message in client.subscribe("things", group="sdk"):
        print(message.value.decode(), flush=True)
"""


class Listener:
    """A program that prints what it reads, and what it says beside that."""

    def __init__(self, home: Path, name: str, *command: str) -> None:
        self._out, self._err = home / f"{name}.out", home / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-u", *command],
                stdout=out,
                stderr=err,
                env={**os.environ, "HOME": str(home)},
            )

    def read(self) -> list[str]:
        return self._out.read_text().splitlines()

    def complaints(self) -> str:
        assert self._process.poll() is None, self._err.read_text()
        return self._err.read_text()

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_f53_a_restart_is_quiet(tmp_path: Path, end: str) -> None:
    broker = BrokerProcess(tmp_path / "data").start()
    listeners: dict[str, Listener] = {}
    try:
        produce(broker, "first")
        sqs = boto3.client(
            "sqs", endpoint_url=broker.url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
        )  # fmt: skip
        url = sqs.create_queue(QueueName="jobs")["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="job")
        bootstrap = ("--bootstrap", broker.bootstrap)
        listeners = {
            "tail": Listener(tmp_path, "tail", "-m", "headrace", "topic", "tail", "things", *bootstrap),
            "sdk": Listener(tmp_path, "sdk", "-c", SUBSCRIBER, broker.bootstrap),
        }
        until(lambda: all("first" in each.read() for each in listeners.values()), 120)
        bare = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bare", "auto.offset.reset": "earliest", "log_level": 0})  # fmt: skip
        bare.subscribe(["things"])
        until(lambda: (found := bare.poll(1)) is not None and found.error() is None, 120)
        bare.commit(asynchronous=False)
        assert loud(broker.log()) == []
        broker.stop(120) if end == "stopped" else broker.kill()
        broker.start()
        produce(broker, "second")
        until(lambda: all("second" in each.read() for each in listeners.values()), 240)
        until(lambda: (found := bare.poll(1)) is not None and found.value() == b"second", 240)
        bare.close()
        assert sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"][0]["Body"] == "job"
        assert {name: each.complaints() for name, each in listeners.items()} == {"tail": "", "sdk": ""}
        words = loud(broker.log())
        # After kill -9 one line says what was recovered; a clean stop says nothing at all.
        assert len(words) <= (end == "killed"), "\n".join(words)
    finally:
        for each in listeners.values():
            each.end()
        broker.kill()


def produce(broker: BrokerProcess, value: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce("things", value)
    assert producer.flush(120) == 0


def loud(log: str) -> list[str]:
    return [
        line
        for line in log.splitlines()
        if any(word in line for word in ("WARN", "ERROR", "CRIT", "Traceback"))
    ]
