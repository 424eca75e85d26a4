"""K2: what goes in comes out, byte for byte: every client, every codec."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 10_000
VALUES = [b"%d:" % number + bytes([number % 256]) * (number % 200) for number in range(COUNT)]


def key_of(number: int) -> bytes | None:
    return None if number % 7 == 0 else b"key-%d" % (number % 100)


def check(got: list[tuple[bytes | None, bytes | None]]) -> None:
    assert len(got) == COUNT
    assert sorted(got, key=repr) == sorted(
        ((key_of(number), value) for number, value in enumerate(VALUES)), key=repr
    )


@pytest.mark.parametrize("codec", CODECS)
def test_confluent(broker: BrokerProcess, topic: str, codec: str) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "compression.type": codec,
            "linger.ms": 5,
            "enable.idempotence": True,
        }
    )
    failed: list[object] = []
    for number, value in enumerate(VALUES):
        producer.produce(
            topic, value, key_of(number), headers=[("n", str(number)), ("none", None)],
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
        producer.poll(0)
    assert producer.flush(120) == 0 and not failed
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"g-{topic}",
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    consumer.subscribe([topic])
    got: list[tuple[bytes | None, bytes | None]] = []
    for _ in range(100):
        for message in consumer.consume(2000, 1.0):
            assert message.error() is None
            headers = dict(message.headers())
            assert VALUES[int(headers["n"])] == message.value() and headers["none"] is None
            got.append((message.key(), message.value()))
        if len(got) >= COUNT:
            break
    consumer.close()
    check(got)


@pytest.mark.parametrize("codec", CODECS)
async def test_aiokafka(broker: BrokerProcess, topic: str, codec: str) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=True,
        linger_ms=5,
    )
    await producer.start()
    sent = [
        await producer.send(topic, value, key_of(number), headers=[("n", b"%d" % number)])
        for number, value in enumerate(VALUES)
    ]
    await asyncio.gather(*sent)
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, group_id=f"g-{topic}", auto_offset_reset="earliest"
    )
    await consumer.start()
    got: list[tuple[bytes | None, bytes | None]] = []
    async with asyncio.timeout(60):
        while len(got) < COUNT:
            for messages in (await consumer.getmany(timeout_ms=1000)).values():
                got += [(message.key, message.value) for message in messages]
    await consumer.stop()
    check(got)


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python(broker: BrokerProcess, topic: str, codec: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5
    )
    futures = [producer.send(topic, value, key_of(number)) for number, value in enumerate(VALUES)]
    producer.flush(60)
    assert all(future.succeeded() for future in futures)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=f"g-{topic}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=5000,
    )
    got: list[tuple[bytes | None, bytes | None]] = []
    for message in consumer:
        got.append((message.key, message.value))
        if len(got) == COUNT:
            break
    consumer.close()
    check(got)


@pytest.mark.parametrize("codec", CODECS)
def test_kcat(broker: BrokerProcess, topic: str, codec: str, tmp_path: Path) -> None:
    lines = [f"key-{number % 100}|value {number}" for number in range(COUNT)]
    (tmp_path / "in").write_text("\n".join(lines) + "\n")
    produce = [
        "kcat",
        "-b",
        broker.bootstrap,
        "-P",
        "-t",
        topic,
        "-K",
        "|",
        "-z",
        codec,
        "-l",
        str(tmp_path / "in"),
    ]
    subprocess.run(produce, check=True, timeout=60, capture_output=True)
    consume = [
        "kcat",
        "-b",
        broker.bootstrap,
        "-C",
        "-t",
        topic,
        "-e",
        "-q",
        "-f",
        "%k|%s\\n",
        "-c",
        str(COUNT),
    ]
    out = subprocess.run(consume, check=True, timeout=60, capture_output=True, text=True).stdout
    assert sorted(out.splitlines()) == sorted(lines)


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_really_compresses(broker: BrokerProcess, topic: str, codec: str, tmp_path: Path) -> None:
    """Trap 1: with Produce advertised from version 3 up, librdkafka silently sends everything uncompressed."""
    (tmp_path / "in").write_text(("x" * 1000 + "\n") * 1000)
    produce = ["kcat", "-b", broker.bootstrap, "-P", "-t", topic, "-z", codec, "-l", str(tmp_path / "in")]
    subprocess.run(produce, check=True, timeout=60, capture_output=True)
    stored = broker.stored_bytes(topic)
    assert stored > 1_000_000 if codec == "none" else stored < 300_000


@pytest.mark.parametrize("codec", CODECS)
def test_kafkajs(broker: BrokerProcess, topic: str, codec: str, kafkajs: Path) -> None:
    command = ["node", "round_trip.js", broker.bootstrap, topic, codec, str(COUNT)]
    ran = subprocess.run(command, cwd=kafkajs, timeout=100, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    expected = {(f"k{number % 50}", f"value-{number}", str(number)) for number in range(COUNT)}
    assert {tuple(entry[1:]) for entry in report["seen"]} == expected
    for partition in (0, 1):
        numbers = [int(entry[3]) for entry in report["seen"] if entry[0] == partition]
        assert numbers == sorted(numbers), "order holds per partition"
    assert f"g-{topic}" in report["groups"]
    assert sum(int(entry["high"]) for entry in report["offsets"]) == COUNT
    assert report["configs"] > 30
