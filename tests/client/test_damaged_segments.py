"""What lies on a real disk and what a real broker makes of it: lost sectors, gaps that compaction left (F75)."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from raw_client import RawClient
from webhook_endpoint import until

from headrace.core.errors import ErrorKind
from headrace.core.limits import MIB
from headrace.records.build import Record, build_batch
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

pytestmark = pytest.mark.client


def now_ms() -> int:
    return int(time.time() * 1000)


def segments(broker: BrokerProcess, topic: str) -> list[Path]:
    return sorted(broker.data_dir.rglob(f"*{topic}*/**/*.log"))


def test_f75_sectors_lost_far_behind_are_a_power_cut_and_no_rot(
    fresh_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    """A power cut may lose a sector of what was not synced, deep in a large batch: the log ends in front of that batch. It
    must not be taken for rot, which would keep the partition offline until somebody repairs it."""
    broker = fresh_broker()
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic, headrace_flush="os", max_message_bytes=str(8 * MIB))
        for size in (100, 4 * MIB, 100, 100):
            value = random.Random(size).randbytes(size)
            assert (
                raw.produce(topic, bytearray(build_batch([Record(b"k", value)], wall_ms=now_ms()))).error_code
                == 0
            )
    broker.kill()
    (path,) = segments(broker, topic)
    with path.open("r+b") as file:
        file.seek(3 * MIB)
        file.write(bytes(512))
        file.flush()
        os.fsync(file.fileno())
    broker.start()
    with RawClient(broker.kafka_port) as raw:
        after = build_batch([Record(b"k", b"after")], wall_ms=now_ms())
        until(lambda: raw.produce(topic, bytearray(after), acks=-1).error_code == 0, 60)
        row = raw.fetch(topic, 0)
        assert row.error_code == 0 and row.high_watermark == 2, (
            "what came before the large batch, and what came after the start"
        )


def test_f75_a_lookup_by_time_steps_over_the_gaps_that_compaction_left(
    fresh_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    """Offsets jump in a compacted segment; a lookup that took this for damage would take the replica offline."""
    broker = fresh_broker(environment={"HEADRACE_RETENTION_CHECK_INTERVAL_MS": "200"})
    began = now_ms()
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(
            topic,
            cleanup_policy="compact",
            segment_bytes="20000",
            segment_ms="500",
            min_cleanable_dirty_ratio="0.01",
        )

        def put(key: str, timestamp: int) -> None:
            record = Record(key.encode(), b"x" * 100, (), timestamp)
            batch = bytearray(build_batch([record], wall_ms=timestamp))
            assert raw.produce(topic, batch, acks=-1).error_code == 0

        for number in range(300):
            put("hot" if number % 7 else f"k{number}", began + number)

        def sparse() -> bool:
            put("hot", now_ms())  # segments are closed by what comes after them
            return 0 < broker.stored_bytes(topic) < 20_000

        until(sparse, 60)
        found = []
        for asked in (0, 1, 8, 150):
            wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, began + asked)])
            row = (
                raw.call(ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(-1, 0, [wanted])).topics[0].partitions[0]
            )
            assert row.error_code == 0, ErrorKind(row.error_code).name
            found.append(row.offset)
        assert found == [0, 7, 14, 154]
        assert raw.fetch(topic, 0).error_code == 0
