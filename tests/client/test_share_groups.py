"""confluent_kafka.ShareConsumer against a real broker (KIP-932, Q5): eight on one partition; accept, release, reject, expiry."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka import AcknowledgeType
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from raw_client import RawClient
from raw_share import BROKER_RESOURCE, set_config

from headrace.testing.broker_process import BrokerProcess


def consumer(broker: BrokerProcess, group: str, **options: Any) -> Any:
    return ck.ShareConsumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0,
         **{name.replace("_", "."): value for name, value in options.items()}}
    )  # fmt: skip


def configure(broker: BrokerProcess, group: str, settings: dict[str, str]) -> None:
    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


@pytest.fixture
def group(broker: BrokerProcess, topic: str) -> str:
    """A group that begins at the beginning, with a lock of two seconds and three deliveries; and its topic."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result()
    name = f"g-{topic}"
    settings = {
        "share.auto.offset.reset": "earliest",
        "share.record.lock.duration.ms": "2000",
        "share.delivery.count.limit": "3",
    }
    with RawClient(broker.kafka_port) as raw:  # librdkafka has no way to name all brokers
        assert set_config(raw, BROKER_RESOURCE, "", group_share_min_record_lock_duration_ms="1000") == 0
    configure(broker, name, settings)
    (described,) = admin.describe_configs([ConfigResource(ResourceType.GROUP, name)]).values()
    assert described.result()["share.record.lock.duration.ms"].value == "2000"
    return name


def produce(broker: BrokerProcess, topic: str, bodies: list[bytes]) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.num.messages": 7})
    for body in bodies:
        producer.produce(topic, body)
    producer.flush()


def poll_some(reader: Any, count: int, seconds: float = 240.0) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        found += [message for message in reader.poll(timeout=1.0) or () if message.error() is None]
    return found


def test_eight_consumers_share_one_partition(broker: BrokerProcess, topic: str, group: str) -> None:
    """Each of eight keeps its first records until all eight have some: how the rest is shared is the scheduler's business."""
    configure(broker, group, {"share.record.lock.duration.ms": "60000"})
    bodies = [b"m%d" % i for i in range(800)]
    seen: Counter[bytes] = Counter()
    served: set[int] = set()
    changed = threading.Condition()

    def work(number: int) -> None:
        reader = consumer(broker, group, max_poll_records=20)
        reader.subscribe([topic])
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and len(seen) < len(bodies):
            messages = [message for message in reader.poll(timeout=0.5) or () if message.error() is None]
            if not messages:
                continue
            with changed:
                seen.update(message.value() for message in messages)
                served.add(number)
                changed.notify_all()
                changed.wait_for(lambda: len(served) == 8, timeout=50)
            reader.commit_sync(120)
        reader.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    produce(broker, topic, bodies)
    for thread in threads:
        thread.join()
    assert set(seen) == set(bodies)
    assert all(count == 1 for count in seen.values()), "accepted records are delivered once"
    assert served == set(range(8)), "the partition is shared by all, not taken by one after the other"


def test_accept_release_reject(broker: BrokerProcess, topic: str, group: str) -> None:
    produce(broker, topic, [b"accept", b"release", b"reject"])
    reader = consumer(broker, group, share_acknowledgement_mode="explicit")
    reader.subscribe([topic])
    verdicts = {
        b"accept": AcknowledgeType.ACCEPT,
        b"release": AcknowledgeType.RELEASE,
        b"reject": AcknowledgeType.REJECT,
    }
    first = poll_some(reader, 3)
    assert sorted(message.value() for message in first) == sorted(verdicts)
    for message in first:
        reader.acknowledge(message, verdicts[message.value()])
    assert all(error is None for error in reader.commit_sync(120).values())
    for _ in range(2):  # until the delivery limit of three is reached
        (again,) = poll_some(reader, 1)
        assert again.value() == b"release"
        reader.acknowledge(again, AcknowledgeType.RELEASE)
        reader.commit_sync(120)
    assert poll_some(reader, 1, seconds=1.5) == [], "worn out: archived"
    reader.close()


def test_a_lock_that_expires_redelivers(broker: BrokerProcess, topic: str, group: str) -> None:
    produce(broker, topic, [b"held"])
    holder = consumer(broker, group, share_acknowledgement_mode="explicit")
    holder.subscribe([topic])
    (held,) = poll_some(holder, 1)
    began = time.monotonic()
    other = consumer(broker, group)
    other.subscribe([topic])
    (again,) = poll_some(other, 1)
    assert again.value() == b"held" and time.monotonic() - began > 1.0
    holder.acknowledge(held, AcknowledgeType.ACCEPT)
    assert any(error is not None for error in holder.commit_sync(120).values()), "somebody else has it now"
    assert all(error is None for error in other.commit_sync(120).values())
    other.close()
    holder.close()


def test_a_consumer_that_leaves_gives_back_at_once(broker: BrokerProcess, topic: str, group: str) -> None:
    configure(broker, group, {"share.record.lock.duration.ms": "60000"})
    produce(broker, topic, [b"x"])
    first = consumer(broker, group, share_acknowledgement_mode="explicit")
    first.subscribe([topic])
    assert len(poll_some(first, 1)) == 1
    first.close()
    second = consumer(broker, group)
    second.subscribe([topic])
    assert [message.value() for message in poll_some(second, 1, seconds=50.0)] == [b"x"], (
        "before its lock ended"
    )
    second.close()


def test_deliveries_survive_a_kill(fresh_broker: Callable[..., BrokerProcess]) -> None:
    """What was accepted before kill -9 is not delivered after it."""
    broker = fresh_broker()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    change = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, "g", incremental_configs=[change])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    produce(broker, "t", [b"%d" % i for i in range(20)])
    reader = consumer(broker, "g", share_acknowledgement_mode="explicit")
    reader.subscribe(["t"])
    messages = poll_some(reader, 20)
    for message in messages:
        is_even = int(message.value()) % 2 == 0
        reader.acknowledge(message, AcknowledgeType.ACCEPT if is_even else AcknowledgeType.RELEASE)
    reader.commit_sync(120)
    broker.kill()
    broker.start()
    reader.close()
    again = consumer(broker, "g")
    again.subscribe(["t"])
    odd = sorted(int(message.value()) for message in poll_some(again, 10, 30))
    assert odd == list(range(1, 20, 2))
    again.close()
