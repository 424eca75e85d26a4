"""K10: a thousand keys, updated over and over, while readers stand at every position.

`make compaction UPDATES=1000000` runs the same at full size.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import confluent_kafka as ck
import pytest
from raw_client import RawClient, fetch_request

from headrace.core.errors import ErrorKind
from headrace.records.batch import scan
from headrace.records.build import Record, build_batch
from headrace.records.read import read_records
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey

UPDATES = int(os.environ.get("HEADRACE_UPDATES", "60000"))
KEYS = 1000
CHUNK = 5_000

pytestmark = [pytest.mark.client, pytest.mark.timeout(180 + UPDATES // 1000)]

OFTEN = {"HEADRACE_RETENTION_CHECK_INTERVAL_MS": "300"}
COMPACT: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": "262144",
    "segment_ms": "2000",
    "min_cleanable_dirty_ratio": "0.01",
}


@pytest.fixture(scope="module")
def cleaning() -> Iterator[BrokerProcess]:
    """A broker that looks for work three times a second instead of every half minute."""
    with BrokerProcess(environment=OFTEN) as running:
        yield running


def fetched(raw: RawClient, topic: str, offset: int) -> tuple[list[Record], int, int]:
    """(records from this offset on, where to go on, the high watermark); any error is a failure."""
    request = fetch_request([(topic, 0, offset)], max_bytes=1 << 18, max_wait_ms=50)
    row = raw.call(ApiKey.FETCH, 11, request).topics[0].partitions[0]
    assert row.error_code == 0, f"offset {offset}: {ErrorKind(row.error_code).name}"
    found: list[Record] = []
    after = offset
    data = bytes(row.records)
    for position, header in scan(data):
        assert header.last_offset >= after or not found, "batches are in order"
        if not header.is_control:
            found += [r for r in read_records(data, position, max_bytes=1 << 24) if r.offset >= offset]
        after = header.next_offset
    return found, after, row.high_watermark


def read_through(raw: RawClient, topic: str, offset: int = 0) -> list[Record]:
    """Everything from here to the end, as it is when we get there."""
    found: list[Record] = []
    while True:
        records, after, end = fetched(raw, topic, offset)
        found += records
        if after == offset or after >= end:
            return found
        offset = after


class Reader(threading.Thread):
    """Reads while it is cleaned: the whole log from the start, and bits from positions drawn at random."""

    def __init__(self, broker: BrokerProcess, topic: str, acknowledged: Callable[[], int], seed: int) -> None:
        super().__init__(daemon=True)
        self._port, self._topic, self._acknowledged = broker.kafka_port, topic, acknowledged
        self._dice = random.Random(seed)
        self.ended = threading.Event()
        self.problem: BaseException | None = None
        self.passes = self.looks = 0
        self.start()

    def run(self) -> None:
        try:
            with RawClient(self._port) as raw:
                while not self.ended.is_set():
                    self._whole(raw)
                    for _ in range(20):
                        self._look(raw)
        except BaseException as problem:
            self.problem = problem

    def _whole(self, raw: RawClient) -> None:
        """Every key has the value it had when we began, or a newer one."""
        sure = self._acknowledged()
        last: dict[bytes, int] = {}
        offset = -1
        for record in read_through(raw, self._topic):
            assert record.offset > offset, "offsets rise"
            offset = record.offset
            number = int(record.value or b"")
            assert int(record.key or b"") == number % KEYS
            last[record.key or b""] = number
        for number in range(max(0, sure - KEYS), sure):
            found = last.get(b"%d" % (number % KEYS), -1)
            assert found >= number, f"update {number} was acknowledged before this reading; found {found}"
        self.passes += 1

    def _look(self, raw: RawClient) -> None:
        _, _, end = fetched(raw, self._topic, 0)
        if end:
            offset = self._dice.randrange(end)
            records, after, _ = fetched(raw, self._topic, offset)
            assert after > offset and all(record.offset >= offset for record in records)
            self.looks += 1


@pytest.mark.slow
def test_updates_of_a_thousand_keys(cleaning: BrokerProcess, topic: str) -> None:
    with RawClient(cleaning.kafka_port) as raw:
        raw.create_topic(topic, **COMPACT)
    done = [0]
    readers = [Reader(cleaning, topic, lambda: done[0], seed) for seed in range(2)]
    producer = ck.Producer(
        {"bootstrap.servers": cleaning.bootstrap, "linger.ms": 5, "enable.idempotence": True, "log_level": 0,
         "batch.num.messages": 1000, "queue.buffering.max.messages": 100_000}
    )  # fmt: skip
    for start in range(0, UPDATES, CHUNK):
        for number in range(start, min(start + CHUNK, UPDATES)):
            producer.produce(topic, str(number), str(number % KEYS), partition=0)
        assert producer.flush(60) == 0
        done[0] = min(start + CHUNK, UPDATES)
    with RawClient(cleaning.kafka_port) as raw:
        expected = {b"%d" % (number % KEYS): b"%d" % number for number in range(UPDATES - KEYS, UPDATES)}
        deadline = time.monotonic() + 240
        while len(live := read_through(raw, topic)) > KEYS:
            assert time.monotonic() < deadline, f"{len(live)} records are left"
            time.sleep(0.3)
        assert {record.key: record.value for record in live} == expected
    for reader in readers:
        reader.ended.set()
        reader.join(60)
        if reader.problem is not None:
            raise reader.problem
        assert reader.passes and reader.looks
    cleaning.kill()
    cleaning.start()
    with RawClient(cleaning.kafka_port) as raw:
        assert {record.key: record.value for record in read_through(raw, topic)} == expected
    print(
        f"{UPDATES} updates of {KEYS} keys: {len(live)} records left; readers went through "
        f"{sum(reader.passes for reader in readers)} times and looked at {sum(reader.looks for reader in readers)} places"
    )


def wait_for(
    raw: RawClient, topic: str, wanted: Mapping[bytes, bytes | None], seconds: float = 240.0
) -> None:
    """Until exactly these records are left."""
    deadline = time.monotonic() + seconds
    while True:
        left = [(record.key, record.value) for record in read_through(raw, topic)]
        if dict(left) == wanted and len(left) == len(wanted):
            return
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def publish(broker: BrokerProcess, topic: str, *pairs: tuple[str, str | None]) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, "log_level": 0})
    for key, value in pairs:
        producer.produce(topic, value, key)
    assert producer.flush(120) == 0


def test_tombstones_are_seen_and_then_go(cleaning: BrokerProcess, topic: str) -> None:
    with RawClient(cleaning.kafka_port) as raw:
        raw.create_topic(topic, **COMPACT, delete_retention_ms="3000")
        publish(cleaning, topic, ("a", "1"), ("b", "1"), ("a", None), ("b", "2"))
        assert (b"a", None) in [(record.key, record.value) for record in read_through(raw, topic)]
        # Two passes: the first gives it its horizon, one after the horizon drops it. As in Kafka, only news cause a pass.
        deadline, number = time.monotonic() + 240, 0
        while b"a" in (left := {record.key: record.value for record in read_through(raw, topic)}):
            assert time.monotonic() < deadline, left
            publish(cleaning, topic, ("c", str(number := number + 1)))
            time.sleep(1)
        assert left == {b"b": b"2", b"c": b"%d" % number}


def test_compact_and_delete_do_both(cleaning: BrokerProcess, topic: str) -> None:
    with RawClient(cleaning.kafka_port) as raw:
        raw.create_topic(topic, **{**COMPACT, "cleanup_policy": "compact,delete"}, retention_ms="8000")
        publish(cleaning, topic, *[(str(number % 3), str(number)) for number in range(30)])
        wait_for(raw, topic, {b"0": b"27", b"1": b"28", b"2": b"29"})
        deadline = time.monotonic() + 240
        while (row := raw.fetch(topic, 30)).log_start_offset < 30:
            assert time.monotonic() < deadline, row
            time.sleep(0.2)


def test_records_without_a_key_are_refused_one_by_one(cleaning: BrokerProcess, topic: str) -> None:
    """kafka.md 5.1: the answer says which; librdkafka tells only those apart from their neighbours."""
    with RawClient(cleaning.kafka_port) as raw:
        raw.create_topic(topic, **COMPACT)
        records = [Record(b"k", b"1"), Record(None, b"2"), Record(b"k", b"3"), Record(None, b"4")]
        row = raw.produce(topic, build_batch(records, wall_ms=time.time_ns() // 1_000_000))
        assert row.error_code == ErrorKind.INVALID_RECORD
        assert [entry.batch_index for entry in row.record_errors] == [1, 3]
        assert fetched(raw, topic, 0)[2] == 0, "nothing of the batch is there"
    outcome: dict[bytes, Any] = {}
    producer = ck.Producer({"bootstrap.servers": cleaning.bootstrap, "linger.ms": 100, "log_level": 0})
    for key, value in ((b"k", b"1"), (None, b"2")):
        producer.produce(topic, value, key, on_delivery=lambda error, m: outcome.update({m.value(): error}))
    producer.flush(120)
    assert outcome[b"2"].code() == ck.KafkaError.INVALID_RECORD


def test_read_committed_of_a_compacted_topic(cleaning: BrokerProcess, topic: str) -> None:
    """R52: what was aborted neither shows nor wins over what was committed before it."""
    with RawClient(cleaning.kafka_port) as raw:
        raw.create_topic(topic, **COMPACT)
        producer = ck.Producer(
            {
                "bootstrap.servers": cleaning.bootstrap,
                "transactional.id": topic,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        producer.init_transactions(20)
        for number in range(40):
            producer.begin_transaction()
            for key in range(5):
                producer.produce(topic, f"{number}", f"{key}")
            if number % 2:
                producer.flush(120)
                producer.abort_transaction(120)
            else:
                producer.commit_transaction(120)
        publish(cleaning, topic, ("end", "1"))
        wanted = {b"%d" % key: b"38" for key in range(5)} | {b"end": b"1"}
        wait_for(raw, topic, wanted)  # read_uncommitted: what was aborted is really gone
    consumer = ck.Consumer(
        {"bootstrap.servers": cleaning.bootstrap, "group.id": topic, "enable.partition.eof": True,
         "isolation.level": "read_committed", "auto.offset.reset": "earliest", "log_level": 0}
    )  # fmt: skip
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    found: dict[bytes, bytes] = {}
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error() is not None:
            break
        found[message.key()] = message.value()
    consumer.close()
    assert found == wanted
