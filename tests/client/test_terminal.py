"""F53, F57: what a person sees on a terminal of 80 columns: lines that fit, no Python, and nothing that others forged."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable

import boto3
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

Look = Callable[..., list[str]]
COLUMNS = 80


@pytest.fixture
def look(broker: BrokerProcess) -> Look:
    """The lines that a command shows on a terminal."""
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment = {
        **kept,
        "HEADRACE_BOOTSTRAP": broker.bootstrap,
        "HEADRACE_URL": broker.url,
        "NO_COLOR": "1",
    }

    def run(*arguments: str) -> list[str]:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
        )  # fmt: skip
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:
            pass  # Linux says EIO when the last one has hung up
        os.close(ours)
        assert process.wait(60) == 0, shown.decode()
        return shown.decode().replace("\r\n", "\n").splitlines()

    return run


def test_f57_no_escape_of_others_reaches_the_terminal(broker: BrokerProcess, look: Look, topic: str) -> None:
    evil = f"{topic}\x1b[2J\nforged\x9b31m"
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(
        topic, f"one\nforged\x1b]0;title\x07 {topic}", key="k\x1b[1A", headers={"h": b"\x1b[31m"}
    )
    producer.flush(30)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": evil, "client.id": "c\x1b[5m"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    commands = [
        ("topic", "consume", topic),
        ("topic", "consume", topic, "-f", "%k %h %v\\n"),
        ("topic", "consume", topic, "--json"),
        ("group", "describe", evil),
        ("group", "list"),
        ("group", "list", "-o", "name"),
        ("group", "list", "-o", "csv"),
        ("group", "lag", evil),
        ("group", "seek", evil, "--to", "start", "--yes"),
    ]
    for command in commands:
        lines = look(*command)
        assert any(topic[:15] in line for line in lines), (command, lines)
        for line in lines:
            assert line.isprintable(), (command, lines)
            assert not line.startswith("forged"), (command, lines)


def test_f53_tables_fit_the_terminal(broker: BrokerProcess, look: Look, topic: str) -> None:
    long = f"{topic}-{'x' * (50 - len(topic) - 1)}"
    sqs = boto3.client(
        "sqs", endpoint_url=broker.url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
    )  # fmt: skip
    url = sqs.create_queue(QueueName=long)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="word " * 50)
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"group-of-{long}",
            "auto.offset.reset": "earliest",
        }
    )
    reader.subscribe([long])
    try:
        while reader.poll(1) is None:
            pass
        commands = [
            ("queue", "list"), ("queue", "peek", long), ("queue", "describe", long), ("topic", "list"),
            ("topic", "describe", long), ("group", "list"), ("group", "lag"), ("group", "describe", f"group-of-{long}"),
            ("cluster", "nodes"), ("cluster", "partitions"), ("subscription", "list"), ("config", "show", "--origin"),
        ]  # fmt: skip
        for command in commands:
            lines = look(*command)
            table = [line for line in lines if not line.startswith((long, "group-of-", "Files,"))]  # no prose
            assert lines and all(len(line) <= COLUMNS for line in table), (command, lines)
    finally:
        reader.close()
    (receipt,) = [line for line in look("queue", "receive", long) if line.startswith("RECEIPT")]
    look("queue", "ack", long, receipt.split()[1])  # shown whole, ready to be used


def test_f53_no_python_is_shown(look: Look, topic: str) -> None:
    look("queue", "create", topic)
    shown = "\n".join(look("queue", "describe", topic))
    assert not re.search(r"\bTrue\b|\bFalse\b|\bNone\b|\['|\{'", shown), shown
