"""X12: what has to be opened, and what may be opened on the event loop."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headrace.broker.batch_opening import SMALL_BYTES, Opened, needs_a_thread, open_batch
from headrace.broker.partition import Partition
from headrace.cluster.configs import TopicConfig
from headrace.records.batch import read_header
from headrace.records.build import Record, build_batch
from headrace.records.compression import Codec

COMPACTED = TopicConfig(cleanup_policy=("compact",))
GZIPPED = TopicConfig(compression_type="gzip")


class Fake:
    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self.opens_batches = config.opens_batches


def batch(size: int = 100, codec: Codec = Codec.NONE, key: bytes | None = b"k") -> memoryview:
    return memoryview(bytearray(build_batch([Record(key, b"x" * size)], codec=codec, wall_ms=1)))


@pytest.mark.parametrize(
    ("config", "records", "expected"),
    [
        (TopicConfig(), batch(SMALL_BYTES), False),
        (TopicConfig(), batch(codec=Codec.ZSTD), False),
        (COMPACTED, batch(), False),
        (COMPACTED, batch(SMALL_BYTES), True),
        (COMPACTED, batch(codec=Codec.ZSTD), True),
        (GZIPPED, batch(SMALL_BYTES), True),
        (GZIPPED, memoryview(b""), False),
        (GZIPPED, None, False),
    ],
)
def test_a_thread_for_what_may_be_long(config: TopicConfig, records: Any, expected: bool) -> None:
    assert needs_a_thread(cast(Partition, Fake(config)), records) is expected


def test_what_is_found_inside() -> None:
    records = batch()
    assert open_batch(records, COMPACTED) == Opened(records)
    assert open_batch(batch(key=None), COMPACTED).keyless == (0,)
    assert read_header(open_batch(records, GZIPPED).records).codec == Codec.GZIP
    assert open_batch(memoryview(b"no batch"), COMPACTED).corrupt is not None
