"""F53, F57: what a person sees on a terminal of 80 columns: no Python, and nothing that others forged. Tables: test_tables.py."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from terminal import look_at

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

Look = Callable[..., list[str]]


@pytest.fixture
def look(broker: BrokerProcess, tmp_path: Path) -> Look:
    """The lines that a command shows on a terminal."""
    environment = {
        "HEADRACE_BOOTSTRAP": broker.bootstrap,
        "HEADRACE_URL": broker.url,
        "HEADRACE_TIMEOUT": "60s",
    }

    def run(*arguments: str) -> list[str]:
        ((code, lines),) = look_at([arguments], environment, tmp_path)
        assert code == 0, lines
        return lines

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
        ("topic", "export", topic),
        ("topic", "export", topic, "--as", "csv"),
        ("topic", "search", topic),
        ("group", "seek", evil, "--to", "start", "--yes"),
    ]
    for command in commands:
        lines = look(*command)
        assert any(topic[:15] in line for line in lines), (command, lines)
        for line in lines:
            assert line.isprintable(), (command, lines)
            assert not line.startswith("forged"), (command, lines)


def test_f53_a_receipt_is_shown_whole(look: Look, topic: str) -> None:
    look("queue", "create", topic)
    look("queue", "send", topic, "word " * 50)
    (receipt,) = [line for line in look("queue", "receive", topic) if line.startswith("RECEIPT")]
    look("queue", "ack", topic, receipt.split()[1])  # ready to be used


def test_f53_no_python_is_shown(look: Look, topic: str) -> None:
    look("queue", "create", topic)
    shown = "\n".join(look("queue", "describe", topic))
    assert not re.search(r"\bTrue\b|\bFalse\b|\bNone\b|\['|\{'", shown), shown
