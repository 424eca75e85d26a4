"""What a topic's configs promise, seen by real clients: sizes, timestamps, compression, storage, retention (K7, K12)."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from raw_client import RawClient

from headrace.core.errors import ErrorKind
from headrace.records.batch import read_header
from headrace.records.build import Record, build_batch
from headrace.records.compression import Codec
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client


@pytest.fixture
def raw(broker: BrokerProcess) -> Any:
    with RawClient(broker.kafka_port) as client:
        yield client


def batch_of(*values: bytes, key: bytes | None = b"k", **options: Any) -> bytes:
    return build_batch([Record(key, value) for value in values], wall_ms=int(time.time() * 1000), **options)


def stored(raw: RawClient, topic: str) -> bytes:
    return bytes(raw.fetch(topic, 0, max_bytes=10 << 20).records or b"")


def test_max_message_bytes_is_enforced(broker: BrokerProcess, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic, max_message_bytes="5000")
    assert raw.produce(topic, batch_of(b"x" * 4000)).error_code == 0
    assert raw.produce(topic, batch_of(b"x" * 6000)).error_code == ErrorKind.MESSAGE_TOO_LARGE
    errors: list[Any] = []
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "none"})
    producer.produce(
        topic, b"x" * 6000, on_delivery=lambda error, _: errors.append(error.code() if error else None)
    )
    producer.flush(120)
    assert errors == [ck.KafkaError.MSG_SIZE_TOO_LARGE]
    assert len(stored(raw, topic)) < 5000, "nothing of what was refused is there"


@pytest.mark.parametrize("version", [3, 7, 9])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused(raw: RawClient, topic: str, magic: int, version: int) -> None:
    """kafka.md 5.1: message sets of Kafka before 0.11 are not taken, and nothing is stored."""
    raw.create_topic(topic)
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", 1_750_000_000_000) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", 5) + b"hello"
    message = struct.pack(">I", zlib.crc32(body)) + body
    old = struct.pack(">qi", 0, len(message)) + message
    assert raw.produce(topic, bytearray(old), version=version).error_code == ErrorKind.INVALID_RECORD
    assert stored(raw, topic) == b""


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ("flip", ErrorKind.CORRUPT_MESSAGE),
        ("cut", ErrorKind.CORRUPT_MESSAGE),
        ("two", ErrorKind.INVALID_RECORD),
        ("offset", ErrorKind.INVALID_RECORD),
        ("none", ErrorKind.INVALID_RECORD),
    ],
)
def test_a_damaged_batch_is_refused(raw: RawClient, topic: str, damage: str, expected: ErrorKind) -> None:
    raw.create_topic(topic)
    batch = bytearray(batch_of(b"hello"))
    if damage == "flip":
        batch[-1] ^= 1
    elif damage == "cut":
        del batch[-3:]
    elif damage == "two":
        batch = batch * 2
    elif damage == "offset":
        batch[7] = 3
    else:
        batch = bytearray()
    assert raw.produce(topic, batch).error_code == expected
    assert stored(raw, topic) == b""


def test_log_append_time(broker: BrokerProcess, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    row = raw.produce(topic, build_batch([Record(b"k", b"v", (), 1_000)], wall_ms=1_000))
    after = int(time.time() * 1000)
    assert before <= row.log_append_time_ms <= after
    consumer = ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    consumer.subscribe([topic])
    message = consumer.poll(15)
    assert message.timestamp() == (ck.TIMESTAMP_LOG_APPEND_TIME, row.log_append_time_ms)
    consumer.close()


def test_timestamps_too_far_away_are_refused(raw: RawClient, topic: str) -> None:
    raw.create_topic(topic, message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    now = int(time.time() * 1000)
    for timestamp, expected in (
        (now, 0),
        (now - 60_000, ErrorKind.INVALID_TIMESTAMP),
        (now + 60_000, ErrorKind.INVALID_TIMESTAMP),
    ):
        assert (
            raw.produce(topic, build_batch([Record(b"k", b"v", (), timestamp)], wall_ms=now)).error_code
            == expected
        )


@pytest.mark.parametrize("wanted", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_may_choose_its_compression(
    broker: BrokerProcess, raw: RawClient, topic: str, wanted: str
) -> None:
    raw.create_topic(topic, compression_type=wanted)
    sent = Codec.NONE if wanted != "uncompressed" else Codec.GZIP
    assert raw.produce(topic, batch_of(b"a" * 1000, b"b" * 1000, codec=sent), acks=-1).error_code == 0
    header = read_header(stored(raw, topic))
    assert Codec(header.codec).name.lower() == {"uncompressed": "none"}.get(wanted, wanted)
    consumer = ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    consumer.subscribe([topic])
    assert [message.value() for message in consumer.consume(2, 15)] == [b"a" * 1000, b"b" * 1000]
    consumer.close()


def test_a_compacted_topic_wants_keys(raw: RawClient, topic: str) -> None:
    """Trap 6: the records without a key are named one by one (Produce v8)."""
    raw.create_topic(topic, cleanup_policy="compact")
    records = [Record(b"k", b"1"), Record(None, b"2"), Record(b"k", b"3"), Record(None, b"4")]
    row = raw.produce(topic, build_batch(records, wall_ms=int(time.time() * 1000)))
    assert row.error_code == ErrorKind.INVALID_RECORD
    assert [error.batch_index for error in row.record_errors] == [1, 3]
    assert stored(raw, topic) == b""


def test_memory_topics_are_gone_after_a_restart_and_others_stay(
    fresh_broker: Callable[..., BrokerProcess],
) -> None:
    broker = fresh_broker()
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic("kept")
        raw.create_topic("fleeting", storage="memory")
        for topic in ("kept", "fleeting"):
            assert raw.produce(topic, batch_of(b"v"), acks=-1).error_code == 0
            assert raw.fetch(topic, 0).high_watermark == 1
    assert not list(broker.data_dir.glob("topics/fleeting@*/**/*.log"))
    broker.kill()
    broker.start()
    with RawClient(broker.kafka_port) as raw:
        assert raw.fetch("kept", 0).high_watermark == 1
        row = raw.fetch("fleeting", 0)
        assert (row.error_code, row.high_watermark) == (0, 0)
        assert raw.produce("fleeting", batch_of(b"again"), acks=-1).error_code == 0


@pytest.fixture
def busy_janitor(fresh_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return fresh_broker(environment={"HEADRACE_RETENTION_CHECK_INTERVAL_MS": "200"})


def wait_for(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_retention_by_size(busy_janitor: BrokerProcess) -> None:
    with RawClient(busy_janitor.kafka_port) as raw:
        raw.create_topic("t", segment_bytes="20000", retention_bytes="50000", file_delete_delay_ms="0")
        for _ in range(30):
            assert raw.produce("t", batch_of(b"x" * 9000)).error_code == 0
        wait_for(lambda: raw.fetch("t", 29).log_start_offset > 20)
        row = raw.fetch("t", 0)
        assert row.error_code == ErrorKind.OFFSET_OUT_OF_RANGE and row.high_watermark == 30
        wait_for(lambda: 0 < busy_janitor.stored_bytes("t", pattern="*.log*") < 90_000)
    consumer = ck.Consumer(
        {"bootstrap.servers": busy_janitor.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.assign([ck.TopicPartition("t", 0, 0)])
    assert consumer.poll(15).offset() > 20, "auto.offset.reset carries the reader over"
    consumer.close()


def test_retention_by_time(busy_janitor: BrokerProcess) -> None:
    with RawClient(busy_janitor.kafka_port) as raw:
        raw.create_topic("t", segment_ms="300", retention_ms="600")
        assert raw.produce("t", batch_of(b"old")).error_code == 0
        wait_for(lambda: raw.fetch("t", 0).error_code == ErrorKind.OFFSET_OUT_OF_RANGE)
        assert raw.produce("t", batch_of(b"new")).base_offset == 1, "offsets go on"


def test_a_compacted_topic_keeps_the_latest_of_each_key(busy_janitor: BrokerProcess) -> None:
    with RawClient(busy_janitor.kafka_port) as raw:
        raw.create_topic(
            "t", cleanup_policy="compact", segment_bytes="20000", min_cleanable_dirty_ratio="0.01"
        )
        for number in range(60):
            records = [Record(b"key-%d" % key, b"%d" % number * 200) for key in range(10)]
            assert raw.produce("t", build_batch(records, wall_ms=int(time.time() * 1000))).error_code == 0
        wait_for(lambda: 0 < busy_janitor.stored_bytes("t") < 60_000)
    consumer = ck.Consumer(
        {"bootstrap.servers": busy_janitor.bootstrap, "group.id": "g", "auto.offset.reset": "earliest",
         "enable.partition.eof": True}
    )  # fmt: skip
    consumer.assign([ck.TopicPartition("t", 0, 0)])
    latest: dict[bytes, bytes] = {}
    while (message := consumer.poll(15)).error() is None:
        latest[message.key()] = message.value()
    assert latest == {b"key-%d" % key: b"59" * 200 for key in range(10)}
    consumer.close()
