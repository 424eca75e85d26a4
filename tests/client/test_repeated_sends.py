"""`faults.repeat_sends`: a send arrives twice. Whoever asked for deduplication has one message, everybody else two; nobody notices anything else."""

from __future__ import annotations

import struct
from typing import Any

import boto3
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from headrace.testing import LocalBroker
from headrace.testing.sends import Incoming, http_request, kafka_request, without_answer

pytestmark = pytest.mark.client


def produced(broker: LocalBroker, topic: str, *values: str, **options: Any) -> list[int]:
    told: list[int] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 0, **options})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, message: told.append(message.offset()))
        assert producer.flush(60) == 0
    return told


def test_a_plain_producer_has_two_and_an_idempotent_one_has_one(
    headrace: LocalBroker, headrace_topic: str
) -> None:
    headrace.faults.repeat_sends(1, "kafka")
    told = produced(headrace, headrace_topic, "a", "b", **{"enable.idempotence": False})
    assert headrace.records(headrace_topic) == ["a", "a", "b"] and told == [1, 2]
    headrace.faults.repeat_sends(2, "kafka")
    assert produced(headrace, headrace_topic, "c", "d", **{"enable.idempotence": True}) == [3, 4]
    assert headrace.records(headrace_topic) == ["a", "a", "b", "c", "d"]


def test_who_waits_for_no_answer_is_repeated_too(headrace: LocalBroker, headrace_topic: str) -> None:
    with headrace.faults.repeat_sends(1, "kafka"):
        produced(headrace, headrace_topic, "a", acks=0)
        produced(headrace, headrace_topic, "b")
    assert headrace.records(headrace_topic) == ["a", "a", "b"]


def test_sqs_and_rest(headrace: LocalBroker) -> None:
    sqs = boto3.client("sqs", **headrace.aws)
    plain = headrace.queue_url(headrace.create_queue("plain"))
    line = headrace.queue_url(headrace.create_queue("line.fifo", fifo=True))
    headrace.faults.repeat_sends(2, "http")
    assert "Messages" not in sqs.receive_message(QueueUrl=plain)  # no send: it comes once
    sqs.send_message(QueueUrl=plain, MessageBody="x")
    sqs.send_message(QueueUrl=line, MessageBody="y", MessageGroupId="g", MessageDeduplicationId="one")
    sqs.send_message(QueueUrl=plain, MessageBody="z")
    assert headrace.messages("plain") == ["x", "x", "z"] and headrace.messages("line.fifo") == ["y"]
    headrace.faults.repeat_sends(1, "http")
    headrace.ask("POST", "/queues/plain/messages", {"value": "w"})
    assert headrace.messages("plain") == ["x", "x", "z", "w", "w"]
    headrace.faults.repeat_sends(1, "http")
    headrace.faults.heal()
    headrace.ask("POST", "/queues/plain/messages", {"value": "v"})
    assert headrace.messages("plain")[-2:] == ["w", "v"]


def frame(key: int, version: int, correlation: int, body: bytes = b"") -> bytes:
    content = struct.pack(">hhih", key, version, correlation, 3) + b"cli" + body
    return struct.pack(">i", len(content)) + content


@given(st.integers(0, 9), st.sampled_from([-1, 0, 1]), st.integers(0, 2**31 - 1), st.binary(max_size=20))
def test_what_is_waited_for_is_read_out_of_any_produce(
    version: int, acks: int, number: int, rest: bytes
) -> None:
    before = b"\x00\x00" if version >= 9 else b"\xff\xff" if version >= 3 else b""
    request = frame(0, version, number, before + struct.pack(">h", acks) + rest)
    assert kafka_request(request + b"more") == Incoming(len(request), True, acks != 0, number)
    assert all(kafka_request(request[:end]) == "incomplete" for end in range(len(request)))


def test_what_is_no_beginning_is_left_alone() -> None:
    assert kafka_request(b"value of a record, half-way") == "unknown"
    assert http_request(b'"half": "of a body"}') == "unknown"
    assert (
        http_request(b"POST /queues/q/messages HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n") == "unknown"
    )


@pytest.mark.parametrize(
    ("line", "header", "body", "sends"),
    [
        ("POST / HTTP/1.1", "X-Amz-Target: AmazonSQS.SendMessageBatch", b"{}", True),
        ("POST / HTTP/1.1", "X-Amz-Target: AmazonSQS.ReceiveMessage", b"{}", False),
        ("POST / HTTP/1.1", "a: b", b"Version=1&Action=SendMessage&QueueUrl=q", True),
        ("POST /topics/t/records HTTP/1.1", "a: b", b"x", True),
        ("POST /queues/q/messages?delay=5s HTTP/1.1", "a: b", b"x", True),
        ("POST /queues/q/messages/r/nack HTTP/1.1", "a: b", b"", False),
        ("GET /topics/t/records HTTP/1.1", "a: b", b"", False),
    ],
)
def test_what_sends_over_http(line: str, header: str, body: bytes, sends: bool) -> None:
    request = f"{line}\r\n{header}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    assert http_request(request + b"POST /") == Incoming(len(request), sends, True, 0)
    assert http_request(request[:-1]) == "incomplete"


def test_the_one_answer_is_taken_out_of_several() -> None:
    one, two, three = (struct.pack(">ii", 4 + number, number) + b"x" * number for number in (1, 2, 3))
    assert without_answer(one + two + three, 2) == one + three
    assert without_answer(one + three, 2) is None
    assert without_answer(two, 2) == b""
