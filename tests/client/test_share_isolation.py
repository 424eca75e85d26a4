"""F11: share.isolation.level both ways. F35: whole batches are acquired, unless the consumer asks for a limit (KIP-1206)."""

from __future__ import annotations

import time

import confluent_kafka as ck
import pytest
from raw_client import RawClient
from raw_share import RECORD_LIMIT, RawSharer, set_group_config
from raw_transactions import RawProducer
from webhook_endpoint import until

from headrace.core.errors import ErrorKind
from headrace.records.build import Record, build_batch
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client


def plain(raw: RawClient, topic: str, *values: bytes) -> None:
    batch = build_batch([Record(None, value) for value in values], wall_ms=int(time.time() * 1000))
    assert raw.produce(topic, bytearray(batch), acks=-1).error_code == 0


def read(sharer: RawSharer, count: int) -> list[bytes | None]:
    """So many values, and not one more in the fetch after them."""
    found: list[bytes | None] = []

    def enough() -> bool:
        found.extend(value for _, value in sharer.fetch())
        return len(found) >= count

    until(enough, 60)
    return found + [value for _, value in sharer.fetch(wait_ms=50)]


@pytest.mark.parametrize("version", [9, 12], ids=["v1", "v2"])
def test_f11_read_committed_waits_and_leaves_out_what_was_aborted(
    broker: BrokerProcess, topic: str, version: int
) -> None:
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        settings = {"share_isolation_level": "read_committed", "share_auto_offset_reset": "earliest"}
        assert set_group_config(raw, topic, **settings) == 0
        sharer = RawSharer(raw, topic, topic)
        producer = RawProducer(raw, topic)
        producer.init()
        for commit in (False, True, False, True):
            plain(raw, topic, b"plain")
            if version < 12:
                producer.add(topic)
            value = b"committed" if commit else b"aborted"
            assert producer.produce(topic, value, value, version=version).error_code == 0
            plain(raw, topic, b"behind")
            assert read(sharer, 1) == [b"plain"], "nothing of an open transaction, and nothing behind it"
            assert producer.end(commit=commit, version=5 if version >= 12 else 3).error_code == 0
            wanted = [b"committed", b"committed", b"behind"] if commit else [b"behind"]
            assert read(sharer, len(wanted)) == wanted


def test_f11_read_uncommitted_is_the_default_as_in_kafka(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        assert set_group_config(raw, topic, share_auto_offset_reset="earliest") == 0
        sharer = RawSharer(raw, topic, topic)
        producer = RawProducer(raw, topic)
        producer.init()
        assert producer.produce(topic, b"open", version=12).error_code == 0
        assert read(sharer, 1) == [b"open"]
        assert producer.end(commit=False, version=5).error_code == 0
        plain(raw, topic, b"behind")
        assert read(sharer, 1) == [b"behind"], "of the marker nobody hears"


def test_f11_a_group_may_change_its_mind(broker: BrokerProcess, topic: str) -> None:
    """What was within reach as uncommitted is not lost and not given out when the group wants committed records only."""
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        both = {"share_isolation_level": "read_uncommitted", "share_auto_offset_reset": "earliest"}
        assert set_group_config(raw, topic, **both) == 0
        sharer = RawSharer(raw, topic, topic)
        producer = RawProducer(raw, topic)
        producer.init()
        assert producer.produce(topic, b"first", version=12).error_code == 0
        assert producer.produce(topic, b"second", version=12).error_code == 0
        until(lambda: [value for _, value in sharer.fetch(1)] == [b"first"], 60)
        assert set_group_config(raw, topic, share_isolation_level="read_committed") == 0
        until(lambda: sharer.fetch(wait_ms=50) == [], 60)
        assert producer.end(commit=True, version=5).error_code == 0
        assert read(sharer, 1) == [b"second"]
        assert set_group_config(raw, topic, share_isolation_level="read_nothing") == ErrorKind.INVALID_CONFIG


def test_f11_confluents_share_consumer_with_read_committed(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        settings = {"share_isolation_level": "read_committed", "share_auto_offset_reset": "earliest"}
        assert set_group_config(raw, topic, **settings) == 0
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(60)
    for number in range(10):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        if number % 2:
            producer.commit_transaction(60)
        else:
            producer.flush(60)
            producer.abort_transaction(60)
    consumer = ck.ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "log_level": 0})
    consumer.subscribe([topic])
    found: list[bytes] = []

    def enough() -> bool:
        found.extend(
            message.value() for message in consumer.poll(timeout=1.0) or () if message.error() is None
        )
        return len(found) >= 5

    until(enough, 120)
    consumer.close()
    assert found == [b"1", b"3", b"5", b"7", b"9"]


@pytest.mark.parametrize("version", [1, 2], ids=lambda version: f"v{version}")
def test_f35_whole_batches_are_acquired(broker: BrokerProcess, topic: str, version: int) -> None:
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        assert set_group_config(raw, topic, share_auto_offset_reset="earliest") == 0
        sharer = RawSharer(raw, topic, topic)
        for _ in range(3):
            plain(raw, topic, *(b"%d" % number for number in range(10)))
        taken: list[int] = []

        def some(max_records: int) -> bool:
            taken[:] = [offset for offset, _ in sharer.fetch(max_records, version=version)]
            return bool(taken)

        until(lambda: some(3), 60)
        assert taken == list(range(10)), "the batch that 3 records fall into"
        until(lambda: some(11), 60)
        assert taken == list(range(10, 30)), "11 records fall into two"


def test_f35_a_record_limit_is_kept(broker: BrokerProcess, topic: str) -> None:
    """KIP-1206: share.acquire.mode=record_limit."""
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
        assert set_group_config(raw, topic, share_auto_offset_reset="earliest") == 0
        sharer = RawSharer(raw, topic, topic)
        for _ in range(2):
            plain(raw, topic, *(b"%d" % number for number in range(10)))
        taken: list[int] = []

        def some() -> bool:
            offsets = [offset for offset, _ in sharer.fetch(3, mode=RECORD_LIMIT)]
            assert len(offsets) <= 3
            taken.extend(offsets)
            return len(taken) == 20

        until(some, 60)
        assert taken == list(range(20))
