"""X12: what has to be opened, and what may be opened on the event loop (F9)."""

from __future__ import annotations

from typing import cast

import pytest

from headrace.broker.batch_opening import (
    GLANCED_RECORDS,
    SMALL_BYTES,
    Glance,
    OpenedBatch,
    is_small,
    open_batch,
)
from headrace.broker.partition import Partition
from headrace.cluster.configs import TopicConfig
from headrace.records.batch import read_header
from headrace.records.build import Record, assemble, build_batch
from headrace.records.compression import Codec

PLAIN = TopicConfig()
COMPACTED = TopicConfig(cleanup_policy=("compact",))
GZIPPED = TopicConfig(compression_type="gzip")
UNSEEN = TopicConfig(record_validation="off")


class Fake:
    def __init__(self, config: TopicConfig) -> None:
        self.config = config


def batch(size: int = 100, codec: Codec = Codec.NONE, key: bytes | None = b"k", count: int = 1) -> memoryview:
    return memoryview(bytearray(build_batch([Record(key, b"x" * size)] * count, codec=codec, wall_ms=1)))


def poison() -> memoryview:
    good = batch()
    return memoryview(assemble(read_header(good), bytes(good[61:-1]) + b"\x02"))


@pytest.mark.parametrize(
    ("records", "small"),
    [
        (batch(), True),
        (batch(SMALL_BYTES), False),
        (batch(codec=Codec.ZSTD), False),
        (memoryview(b""), True),
        (memoryview(b"no batch"), True),
    ],
)
def test_what_may_be_opened_on_the_loop_whatever_is_in_it(records: memoryview, small: bool) -> None:
    assert is_small(records) is small


@pytest.mark.parametrize(
    ("config", "records", "at_once"),
    [
        (PLAIN, batch(count=1000), True),
        (PLAIN, batch(codec=Codec.ZSTD, count=100), True),
        (PLAIN, batch(2000, codec=Codec.ZSTD, count=100), False),  # small, until it is inflated
        (PLAIN, batch(1, count=GLANCED_RECORDS + 1), False),
        (PLAIN, poison(), False),
        (COMPACTED, batch(count=1000), False),
        (GZIPPED, batch(count=1000), False),
    ],
)
def test_a_thread_for_what_may_be_long(config: TopicConfig, records: memoryview, at_once: bool) -> None:
    found = Glance().at(cast(Partition, Fake(config)), records)
    assert found == (OpenedBatch(records) if at_once else None)


def test_all_batches_of_a_request_have_one_budget() -> None:
    glance, partition = Glance(), cast(Partition, Fake(PLAIN))
    many = batch(1, count=GLANCED_RECORDS // 2)
    assert [glance.at(partition, many) is not None for _ in range(3)] == [True, True, False]


def test_what_is_found_inside() -> None:
    records = batch()
    assert open_batch(records, COMPACTED) == OpenedBatch(records)
    assert open_batch(batch(key=None), COMPACTED).keyless == (0,)
    assert read_header(open_batch(records, GZIPPED).records).codec == Codec.GZIP
    assert open_batch(memoryview(b"no batch"), COMPACTED).flaw is not None


def test_records_are_walked_unless_the_topic_says_no() -> None:
    assert open_batch(poison(), PLAIN).flaw == (0, "1 headers with 0 bytes left")
    assert open_batch(poison(), UNSEEN).flaw is None
    assert open_batch(poison(), PLAIN, trusted=True).flaw is None
