"""Delays for stock Kafka clients (Q7): a header on a record of a topic with `headrace.delay.enabled`."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker_process import BrokerProcess


def make_topic(broker: BrokerProcess, name: str, partitions: int = 1, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = NewTopic(name, partitions, 1, config={"headrace.delay.enabled": "true", **configs})
    for future in admin.create_topics([topic]).values():
        future.result()


def reader(broker: BrokerProcess, topic: str, **options: Any) -> ck.Consumer:
    consumer = ck.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": str(uuid4()), "auto.offset.reset": "earliest",
         "fetch.wait.max.ms": 100, **options}
    )  # fmt: skip
    consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING)])
    return consumer


def read(
    consumer: ck.Consumer, count: int, seconds: float = 240.0
) -> list[tuple[bytes, int, dict[str, bytes]]]:
    """(value, when it came in ms, headers)."""
    found: list[tuple[bytes, int, dict[str, bytes]]] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append((message.value(), int(time.time() * 1000), dict(message.headers() or ())))
    return found


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_record_appears_when_it_is_due(broker: BrokerProcess, topic: str, codec: str) -> None:
    make_topic(broker, topic)
    consumer = reader(broker, topic)
    producer = ck.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 50,
            "compression.type": codec,
        }
    )
    began = int(time.time() * 1000)
    producer.produce(topic, b"later", key=b"k", headers=[("a", b"1"), ("headrace-delay-ms", b"1500")])
    producer.produce(topic, b"now")
    producer.produce(topic, b"at", headers=[("headrace-deliver-at", str(began + 900).encode())])
    producer.produce(topic, b"level", headers=[("headrace-delay-level", b"1s")])
    producer.produce(topic, b"past", headers=[("headrace-deliver-at", b"5")])
    assert producer.flush(120) == 0
    found = read(consumer, 5)
    assert sorted(value for value, _, _ in found) == [b"at", b"later", b"level", b"now", b"past"]
    assert [value for value, _, _ in found[:2]] == [b"now", b"past"], "a time that has passed is no delay"
    came = {value: (when, headers) for value, when, headers in found}
    assert came[b"at"][0] >= began + 900
    assert came[b"level"][0] >= began + 1000
    assert came[b"later"][0] >= began + 1500
    assert came[b"later"][0] < began + 8000
    assert came[b"later"][1]["a"] == b"1"
    assert "headrace-delay-ms" not in came[b"later"][1]
    assert read(consumer, 1, 1.0) == [], "each once"
    assert len(read(reader(broker, topic), 6, 3.0)) == 5, "also for those who read again from the start"
    assert len(read(reader(broker, topic, **{"isolation.level": "read_uncommitted"}), 6, 3.0)) == 5
    consumer.close()


def test_a_delay_in_a_transaction_counts_when_it_commits(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker, topic)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    for value in (b"aborted", b"committed"):
        producer.begin_transaction()
        producer.produce(topic, value, headers=[("headrace-delay-ms", b"300")])
        producer.flush(120)
        (producer.abort_transaction if value == b"aborted" else producer.commit_transaction)(20)
    assert [value for value, _, _ in read(reader(broker, topic), 2, 4.0)] == [b"committed"]


def test_what_waits_can_be_listed_moved_and_cancelled(broker: BrokerProcess, topic: str) -> None:
    import json
    from urllib.request import Request, urlopen

    make_topic(broker, topic)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for value in (b"moved", b"cancelled"):
        producer.produce(topic, value, headers=[("headrace-delay-ms", b"3600000")])
    producer.flush(120)

    def ask(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(broker.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=120) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    deadline = time.monotonic() + 240
    items: list[dict[str, Any]] = []
    while len(items) < 2 and time.monotonic() < deadline:
        try:
            items = ask("GET", f"/api/v1/queues/{topic}/scheduled")["items"]
        except OSError:
            continue  # the journal of a new topic is made within a second
    assert len(items) == 2
    ask(
        "PATCH",
        f"/api/v1/queues/{topic}/scheduled/{items[0]['message_id']}",
        {"deliver_at": "2020-01-01T00:00:00Z"},
    )
    ask("DELETE", f"/api/v1/queues/{topic}/scheduled/{items[1]['message_id']}")
    assert [value for value, _, _ in read(reader(broker, topic), 2, 4.0)] == [b"moved"]


def test_a_compacted_topic_has_no_delays(broker: BrokerProcess, topic: str) -> None:
    with pytest.raises(ck.KafkaException):
        make_topic(broker, topic, **{"cleanup.policy": "compact"})  # type: ignore[arg-type]
