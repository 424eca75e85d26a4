"""F9, A5: records are looked at before they are stored, and readers inside the broker step over what nobody can read."""

from __future__ import annotations

import asyncio
import random
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from poison import poisons
from raw_client import RawClient, produce_request
from webhook_endpoint import ALLOW, Api, Server, until

from headrace.core.errors import ErrorKind
from headrace.records.batch import scan, seal
from headrace.records.build import Record, build_batch
from headrace.records.compression import Codec
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.codec import encode

pytestmark = pytest.mark.client

POISONS = poisons()


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.kafka_port, timeout_s=60) as client:
        yield client


def good(text: str, **options: Any) -> bytearray:
    return bytearray(
        build_batch([Record(b"k", text.encode(), (("h", b"1"),))], wall_ms=int(time.time() * 1000), **options)
    )


def read_by_confluent(broker: BrokerProcess, topic: str, count: int) -> list[str]:
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "check.crcs": True})
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    found: list[str] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append((message.value() or b"").decode("utf-8", "replace"))
    consumer.close()
    return found


def read_by_aiokafka(broker: BrokerProcess, topic: str, count: int) -> list[str]:
    async def read() -> list[str]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        try:
            async with asyncio.timeout(60):
                read = [await consumer.getone() for _ in range(count)]
                return [(record.value or b"").decode("utf-8", "replace") for record in read]
        finally:
            await consumer.stop()

    return asyncio.run(read())


def rest(broker: BrokerProcess, method: str, path: str, body: Any = None) -> Any:
    return Api(broker).ask(method, path, body)


@pytest.mark.parametrize("version", [7, 8, 9])
def test_f9_what_nobody_could_read_is_refused(raw: RawClient, topic: str, version: int) -> None:
    raw.create_topic(topic)
    for name, (batch, seen_by_header) in POISONS.items():
        row = raw.produce(topic, bytearray(batch), version=version)
        assert row.error_code == ErrorKind.INVALID_RECORD, name
        assert row.base_offset == -1, name
        assert bool(row.record_errors) == (version >= 8 and not seen_by_header), name
        if version >= 8:
            assert row.error_message, name
    last = raw.produce(topic, bytearray(POISONS["a lie among a thousand"].batch), version=8)
    assert [error.batch_index for error in last.record_errors] == [1000]
    assert raw.fetch(topic, 0).high_watermark == 0, "nothing of it is there"


def test_f9_a_partition_that_was_sent_poison_is_read_by_real_clients(
    broker: BrokerProcess, raw: RawClient, topic: str
) -> None:
    raw.create_topic(topic)
    wanted = []
    for number, (name, (batch, _)) in enumerate(POISONS.items()):
        assert raw.produce(topic, bytearray(batch), acks=-1).error_code, name
        assert raw.produce(topic, good(str(number), codec=number % 5), acks=-1).error_code == 0
        wanted.append(str(number))
    assert read_by_confluent(broker, topic, len(wanted)) == wanted
    assert read_by_aiokafka(broker, topic, len(wanted)) == wanted


def test_f9_what_is_accepted_is_read_by_real_clients(
    broker: BrokerProcess, raw: RawClient, topic: str
) -> None:
    """Spoiled batches with a right checksum: whatever is acknowledged, nobody stands still in front of it."""
    raw.create_topic(topic)
    dice = random.Random(9)
    accepted = 0
    for number in range(1500):
        batch = bytearray(
            build_batch(
                [
                    Record(dice.choice((None, b"key")), b"v" * dice.randrange(80))
                    for _ in range(dice.choice((1, 2, 40)))
                ],
                wall_ms=int(time.time() * 1000),
                codec=dice.choice((0, 0, 0, 0, 1, 2, 3, 4)),
            )
        )
        for _ in range(dice.choice((1, 1, 2))):
            batch[dice.randrange(61, len(batch))] ^= 1 << dice.randrange(8)
        seal(batch, 0, len(batch))
        accepted += raw.produce(topic, batch, acks=-1 if number % 10 == 0 else 1).error_code == 0
    assert 0 < accepted < 1500
    assert raw.produce(topic, good("the end"), acks=-1).error_code == 0
    end = raw.fetch(topic, 0).high_watermark
    assert read_by_confluent(broker, topic, end)[-1] == "the end"
    assert read_by_aiokafka(broker, topic, end)[-1] == "the end"


def test_f9_a_poisoned_partition_of_a_request_does_not_hurt_the_others(raw: RawClient, topic: str) -> None:
    raw.create_topic(topic, partitions=2)
    request = produce_request(topic, bytearray(POISONS["no gzip"].batch), 0)
    request.topics[0].partitions.append(produce_request(topic, good("x"), 1).topics[0].partitions[0])
    rows = raw.call(ApiKey.PRODUCE, 9, request).topics[0].partitions
    assert [row.error_code for row in rows] == [ErrorKind.INVALID_RECORD, 0]


def test_f9_a_partition_named_twice_keeps_both_batches(raw: RawClient, topic: str) -> None:
    """What was found out about one batch is not taken for the other."""
    raw.create_topic(topic)
    request = produce_request(topic, good("first " + "x" * 20_000), acks=-1)
    second = produce_request(topic, good("second " + "y" * 30_000, codec=Codec.LZ4))
    request.topics[0].partitions.append(second.topics[0].partitions[0])
    rows = raw.call(ApiKey.PRODUCE, 9, request).topics[0].partitions
    assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0), (0, 1)]
    found = list(scan(bytes(raw.fetch(topic, 0).records)))
    assert [header.codec for _, header in found] == [Codec.NONE, Codec.LZ4]


def test_f9_batches_that_wait_for_a_thread_keep_their_order(raw: RawClient, topic: str) -> None:
    """R25, R38: an idempotent producer pipelines; what is opened in a thread must not be overtaken by what is not."""
    raw.create_topic(topic)
    frames, sequence = b"", 0
    sizes = []
    for number in range(60):
        count = (1, 400, 20_000, 3)[number % 4]
        value = b"%d " % number + b"x" * (5 if count > 1000 else 100)
        batch = bytearray(
            build_batch(
                [Record(None, value)] * count, wall_ms=int(time.time() * 1000), codec=number % 5,
                producer_id=10_000_000, producer_epoch=0, base_sequence=sequence,
            )
        )  # fmt: skip
        sequence += count
        sizes.append(count)
        frames += raw.frame(ApiKey.PRODUCE, 9, encode(produce_request(topic, batch), 9))
    raw.socket.sendall(frames)
    rows = [raw.answer(ApiKey.PRODUCE, 9).topics[0].partitions[0] for _ in sizes]
    assert [row.error_code for row in rows] == [0] * 60
    assert [row.base_offset for row in rows] == [sum(sizes[:number]) for number in range(60)]


def test_f9_record_validation_is_a_config_of_the_topic(
    broker: BrokerProcess, raw: RawClient, topic: str
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result()
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def shown() -> str:
        (future,) = admin.describe_configs([resource]).values()
        return str(future.result()["record.validation"].value)

    def alter(value: str) -> None:
        entry = ConfigEntry("record.validation", value, incremental_operation=AlterConfigOpType.SET)
        (future,) = admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]
        ).values()
        future.result()

    poison = POISONS["offsets out of order"].batch
    assert shown() == "on"
    assert raw.produce(topic, bytearray(poison)).error_code == ErrorKind.INVALID_RECORD
    alter("off")
    assert shown() == "off"
    until(lambda: raw.produce(topic, bytearray(poison)).error_code == 0)
    alter("on")
    until(lambda: raw.produce(topic, bytearray(poison)).error_code == ErrorKind.INVALID_RECORD)
    with pytest.raises(ck.KafkaException):
        alter("perhaps")


def poisoned(raw: RawClient, topic: str, **configs: Any) -> list[str]:
    """A topic in which between all kinds of poison there is something good."""
    raw.create_topic(topic, record_validation="off", **configs)
    wanted = []
    for number, (name, (batch, seen_by_header)) in enumerate(POISONS.items()):
        if not seen_by_header:
            assert raw.produce(topic, bytearray(batch), acks=-1).error_code == 0, name
        wanted.append(f"good {number}")
        assert raw.produce(topic, good(wanted[-1], codec=number % 5), acks=-1).error_code == 0
    return wanted


def received(broker: BrokerProcess, queue: str, count: int) -> list[str]:
    found: list[str] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        for item in rest(broker, "POST", f"/queues/{queue}/receive?max=10&wait=1s")["items"]:
            if str(item["value"]).startswith("good"):
                found.append(item["value"])
            rest(broker, "DELETE", f"/queues/{queue}/messages/{item['receipt']}")
    return found


def test_f9_rest_steps_over_what_was_stored_unseen(broker: BrokerProcess, raw: RawClient, topic: str) -> None:
    wanted = poisoned(raw, topic)
    found: list[str] = []
    path = f"/topics/{topic}/records?partition=0&limit=5"
    cursor = ""
    while page := rest(broker, "GET", path + cursor):
        found += [item["value"] for item in page["items"] if str(item["value"]).startswith("good")]
        if not page["items"]:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == wanted
    by_time = rest(broker, "GET", f"/topics/{topic}/records?from=2020-01-01T00:00:00Z&limit=100")
    assert [item["value"] for item in by_time["items"] if str(item["value"]).startswith("good")]
    with urllib.request.urlopen(broker.url + "/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    (line,) = (one for one in lines if one.startswith(f'mq_unreadable_batches_total{{topic="{topic}"}}'))
    assert float(line.rpartition(" ")[2]) > 10


def test_f9_queues_step_over_what_was_stored_unseen(
    broker: BrokerProcess, raw: RawClient, topic: str
) -> None:
    wanted = poisoned(raw, topic)
    name = f"{topic}-all"
    rest(broker, "POST", "/api/v1/subscriptions", {"name": name, "topics": [topic], "start": "earliest"})
    assert sorted(received(broker, name, len(wanted))) == sorted(wanted)
    filtered = f"{topic}-some"
    rest(
        broker,
        "POST",
        "/api/v1/subscriptions",
        {"name": filtered, "topics": [topic], "start": "earliest", "filter": 'contains(value, "good")'},
    )
    assert sorted(received(broker, filtered, len(wanted))) == sorted(wanted)


def test_f9_views_step_over_what_was_stored_unseen(broker: BrokerProcess, raw: RawClient, topic: str) -> None:
    wanted = poisoned(raw, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    view = f"{topic}-view"
    config = {"headrace.view.source": topic, "headrace.view.where": 'key == "k"'}
    admin.create_topics([NewTopic(view, -1, config=config)])[view].result()
    assert read_by_confluent(broker, view, len(wanted)) == wanted


def test_f9_webhooks_step_over_what_was_stored_unseen(fresh_broker: Any, topic: str) -> None:
    process = fresh_broker(environment=ALLOW)
    server = Server()
    with RawClient(process.kafka_port, timeout_s=60) as raw:
        wanted = poisoned(raw, topic)
        name = f"{topic}-hook"
        rest(process, "POST", "/api/v1/subscriptions", {"name": name, "topics": [topic], "start": "earliest"})
        endpoint = server.endpoint()
        Api(process).add(name, endpoint, create=False)
        until(lambda: set(wanted) <= {got.value for got in endpoint.got}, 60)
    server.http.shutdown()
