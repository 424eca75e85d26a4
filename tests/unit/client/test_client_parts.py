"""The parts of the SDK that need no broker: payloads, the delivery knob, progress, errors, the public names."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pydantic
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError
from confluent_kafka import Message as KafkaMessage
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace import Client, HeadraceError
from headrace.client.client import _since
from headrace.client.errors import headrace_error
from headrace.client.message import Delivery, Message, Receipt
from headrace.client.payload import encode_headers, encode_key, encode_payload
from headrace.client.progress import Progress
from headrace.client.semantics import CommitOrder, contract
from headrace.core.errors import ErrorKind


def test_payloads() -> None:
    assert encode_payload(b"raw") == b"raw"
    assert encode_payload("ü") == "ü".encode()
    assert encode_payload(None) is None
    assert encode_payload(memoryview(b"view")) == b"view"
    assert encode_payload({"id": 7, "tags": ["a"]}) == b'{"id":7,"tags":["a"]}'
    with pytest.raises(TypeError, match="a payload is bytes, str or something that JSON knows, not object"):
        encode_payload(object())


class _Model(pydantic.BaseModel):
    id: int


class _Struct(msgspec.Struct):
    id: int


@dataclasses.dataclass
class _Plain:
    id: int


@pytest.mark.parametrize("kind", [_Model, _Struct, _Plain])
def test_payloads_have_types(kind: Any) -> None:
    sent = encode_payload(kind(id=7))
    assert sent == b'{"id":7}'
    message = Message(sent, KafkaMessage(topic="t", value=sent), lambda _: None)
    assert message.decode(kind) == kind(id=7)
    broken = Message(b'{"id":"x"}', KafkaMessage(topic="t"), lambda _: None)
    with pytest.raises(HeadraceError, match=f"not a {kind.__name__}"):
        broken.decode(kind)


def test_keys_and_headers() -> None:
    assert encode_key(7) == b"7" == encode_key("7") == encode_key(b"7")
    assert encode_key(None) is None
    assert encode_headers({"a": "1", "b": None}) == [("a", b"1"), ("b", None)]
    assert encode_headers([("a", "1"), ("a", b"2")]) == [("a", b"1"), ("a", b"2")]
    assert encode_headers({}) is None


def test_the_knob_sets_acks_retries_idempotence_and_commit_together_k8() -> None:
    least, most, exactly = contract("at-least-once"), contract("at-most-once"), contract("exactly-once")
    assert least.producer["acks"] == "all" and least.producer["enable.idempotence"] is True
    assert least.commit is CommitOrder.AFTER_WORK
    assert most.producer["message.send.max.retries"] == 0 and most.producer["enable.idempotence"] is False
    assert most.commit is CommitOrder.BEFORE_WORK
    assert exactly.commit is CommitOrder.WITH_RESULTS
    assert exactly.consumer["isolation.level"] == "read_committed"
    for promise in (least, most, exactly):
        # We decide what is done: librdkafka must not store offsets of what it merely handed over.
        assert promise.consumer["enable.auto.offset.store"] is False


def test_a_semantics_that_does_not_exist_is_refused() -> None:
    with pytest.raises(HeadraceError) as unknown:
        Client(delivery="sometimes")
    assert unknown.value.kind is ErrorKind.INVALID_PARAMETER
    assert "at-least-once" in unknown.value.detail


def test_a_group_can_not_begin_in_the_middle() -> None:
    with pytest.raises(HeadraceError, match="only begin at start or end"):
        Client().subscribe("t", group="g", start="@15m")
    with pytest.raises(HeadraceError, match="is not a position"):
        Client().subscribe("t", start="middle")


@given(st.permutations(range(12)), st.integers(0, 3))
def test_progress_commits_exactly_the_finished_prefix(order: list[int], gap: int) -> None:
    """Whatever the order of acks: what is committed never covers something unfinished, and covers all in the end."""
    offsets = [number * (gap + 1) for number in range(len(order))]  # compaction leaves gaps
    progress = Progress()
    for offset in offsets:
        progress.handed_out(offset)
    finished: set[int] = set()
    for number in order:
        finished.add(offsets[number])
        told = progress.finished(offsets[number])
        unfinished = [offset for offset in offsets if offset not in finished]
        prefix = [offset for offset in offsets if not unfinished or offset < unfinished[0]]
        expected = prefix[-1] + 1 if prefix else None
        assert progress.done == expected
        assert told in (None, expected)
        assert progress.finished(offsets[number]) is None, "a second ack changes nothing"
    assert progress.unfinished == 0


def test_errors_of_librdkafka_are_ours() -> None:
    assert headrace_error(KafkaError(KafkaError._TRANSPORT)).kind is ErrorKind.BROKER_NOT_AVAILABLE
    assert headrace_error(KafkaError(KafkaError._MSG_TIMED_OUT)).kind is ErrorKind.REQUEST_TIMED_OUT
    unknown = headrace_error(KafkaError(3, "Broker: Unknown topic or partition"))
    assert unknown.kind is ErrorKind.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.detail == "unknown topic or partition"
    assert headrace_error(KafkaError(KafkaError._BAD_MSG)).kind is ErrorKind.UNKNOWN_SERVER_ERROR


class Server:
    """Who hears answers: here they come by hand."""

    def __init__(self) -> None:
        self.expected: list[Delivery] = []
        self.refused: list[Delivery] = []

    def expect(self, delivery: Delivery) -> None:
        self.expected.append(delivery)

    def failed(self, delivery: Delivery) -> None:
        self.refused.append(delivery)


class Answer:
    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 4


def answer(delivery: Delivery, error: KafkaError | None = None) -> None:
    delivery.answered(error, Answer())


def test_a_delivery_can_be_waited_for_and_awaited() -> None:
    server = Server()
    early = Delivery(server)
    answer(early)
    assert early.done() and early.result(0) == Receipt(3, 4)
    assert not server.expected, "who has been answered keeps nobody busy"

    async def wait() -> Receipt:
        later = Delivery(server)
        asyncio.get_running_loop().call_soon(answer, later)
        return await later

    assert asyncio.run(wait()) == Receipt(3, 4)
    assert len(server.expected) == 1


def test_a_delivery_tells_everybody_once() -> None:
    server = Server()
    delivery = Delivery(server)
    told: list[Delivery] = []
    with pytest.raises(TimeoutError):
        delivery.result(0)
    delivery.add_done_callback(lambda _: 1 / 0)  # type: ignore[arg-type]
    delivery.add_done_callback(told.append)
    waiting = threading.Thread(target=lambda: told.append(delivery) if delivery.exception() else None)
    waiting.start()
    answer(delivery, KafkaError(KafkaError._MSG_TIMED_OUT))
    waiting.join()
    assert told == [delivery, delivery] and server.refused == [delivery]
    delivery.add_done_callback(told.append)
    assert len(told) == 3
    with pytest.raises(HeadraceError):
        delivery.result()


def test_a_message_reads_itself() -> None:
    acked: list[Message] = []
    message = Message(
        b'{"a": 1}',
        KafkaMessage(
            topic="t",
            partition=1,
            offset=5,
            key=b"k",
            headers=[("h", b"1"), ("h", None)],
            timestamp=(TIMESTAMP_CREATE_TIME, 1_793_000_000_123),
        ),
        acked.append,
    )
    assert (message.topic, message.partition, message.offset) == ("t", 1, 5)
    assert message.key == b"k" and message.headers == (("h", b"1"), ("h", None))
    assert Message(None, KafkaMessage(topic="t"), acked.append).timestamp is None
    assert message.json() == {"a": 1} and message.text == '{"a": 1}'
    assert (
        message.timestamp is not None and message.timestamp.isoformat() == "2026-10-26T07:33:20.123000+00:00"
    )
    message.ack()
    assert acked == [message]
    assert repr(message) == "<Message t[1]@5 key=b'k' 8 bytes>"


def test_the_public_names_are_there_and_import_lazily() -> None:
    for name in vars(headrace)["__all__"]:
        assert getattr(headrace, name).__name__ == name
    with pytest.raises(AttributeError):
        headrace.Nothing  # type: ignore[attr-defined] # noqa: B018
    code = "import sys, headrace; print('confluent_kafka' in sys.modules, 'headrace.client' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False False"


def test_a_time_without_a_zone_is_utc() -> None:
    assert _since(datetime(2026, 11, 1)) == _since(datetime(2026, 11, 1, tzinfo=UTC))
    east = timezone(timedelta(hours=2))
    assert _since(datetime(2026, 11, 1, 2, tzinfo=east)) == _since(datetime(2026, 11, 1, tzinfo=UTC))
