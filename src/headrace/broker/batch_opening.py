"""Driver: the batches that a topic's own promise makes us open: a compacted topic refuses records without a key, a
topic with its own compression stores batches in it, and a topic with delays marks those with records that wait.

X12: opening is work that a client chooses the size of, so what may be long happens in a thread, a few at a time; the
budget of all of them together is OPENED_AT_ONCE times what one batch may grow to (X11).
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.queueing.delayed import mark_waiting
from headrace.broker.runtime import Runtime
from headrace.cluster.configs import TopicConfig
from headrace.core.limits import KIB, MAX_DECOMPRESSED_BYTES
from headrace.records.batch import CODEC_MASK, CRC_START, HEADER_BYTES, CorruptBatch, read_header
from headrace.records.compression import Codec
from headrace.records.rebuild import recompress
from headrace.records.validate import keyless_record_indexes

OPENED_AT_ONCE = 2
SMALL_BYTES = 16 * KIB
"""A plain batch up to here is opened where it lies: a thread would cost more than the work."""

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class Opened(NamedTuple):
    records: memoryview
    """In the codec that the topic stores."""
    keyless: tuple[int, ...] = ()
    corrupt: str | None = None


def needs_a_thread(partition: Partition, records: object) -> bool:
    if not partition.opens_batches or not isinstance(records, memoryview):
        return False
    size = len(records)
    return size > SMALL_BYTES or (size > HEADER_BYTES and records[CRC_START + 1] & CODEC_MASK != 0)


def open_batch(records: memoryview, config: TopicConfig) -> Opened:
    """`records` may be anything that a client sent; whether it is a batch at all is found out elsewhere."""
    try:
        header = read_header(records)
        keyless: tuple[int, ...] = ()
        if config.is_compacted:
            keyless = tuple(keyless_record_indexes(records, 0, header, max_bytes=MAX_DECOMPRESSED_BYTES))
        if config.compression_type != "producer" and header.codec != CODECS[config.compression_type]:
            codec = CODECS[config.compression_type]
            records = memoryview(recompress(records, header, codec, max_bytes=MAX_DECOMPRESSED_BYTES))
        if config.delay_enabled:
            records = mark_waiting(records, read_header(records))
    except CorruptBatch as problem:
        return Opened(records, corrupt=str(problem))
    return Opened(records, keyless)


class Opener:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._places = asyncio.Semaphore(OPENED_AT_ONCE)

    async def open(self, records: memoryview, config: TopicConfig) -> Opened:
        """`records` must be the caller's own copy: the connection's buffer is used again meanwhile."""
        async with self._places:
            return await self._runtime.run_blocking(lambda: open_batch(records, config))
