"""Driver: looking into the batches that clients send: whether there is in them what they say (A5, `record.validation`), and
what a topic's own promise wants to know: a compacted topic refuses records without a key, a topic with its own compression
stores batches in it, and a topic with delays marks those with records that wait.

X12: opening is work that a client chooses the size of, so what may be long happens in a thread, a few at a time; the
budget of all of them together is OPENED_AT_ONCE times what one batch may grow to (X11). Most batches need none: that their
records are all right is proven on the spot, at a price that is known beforehand (records/walk.py).
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.queueing.local.delayed import mark_waiting
from headrace.broker.runtime import Runtime
from headrace.broker.schema_ids import SchemaIds, strangers
from headrace.cluster.configs import TopicConfig
from headrace.core.limits import KIB, MIB
from headrace.records.batch import CODEC_MASK, CRC_START, HEADER_BYTES, CorruptBatch, read_header
from headrace.records.compression import Codec, decompression_cap
from headrace.records.read import plain_view
from headrace.records.rebuild import recompress
from headrace.records.validate import keyless_record_indexes
from headrace.records.walk import Flaw, find_flaw, is_regular

OPENED_AT_ONCE = 2
SMALL_BYTES = 16 * KIB
"""A plain batch up to here is opened where it lies: a thread would cost more than the work."""
GLANCED_BYTES = 4 * MIB
GLANCED_RECORDS = 16_384
"""What is looked at on the loop of all the batches of a request: some ten milliseconds at most."""
SMALL_PLAIN_BYTES = 128 * KIB
"""A small compressed batch is inflated on the loop when it does not become larger than this."""

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class OpenedBatch(NamedTuple):
    records: memoryview
    """In the codec that the topic stores."""
    keyless: tuple[int, ...] = ()
    flaw: Flaw | None = None
    strangers: tuple[tuple[int, str], ...] = ()
    """Records whose schema the topic does not have: their indexes, and why."""


class Glance:
    """Of one request: what can be said of its larger batches without a thread."""

    __slots__ = ("_bytes_left", "_records_left")

    def __init__(self) -> None:
        self._bytes_left = GLANCED_BYTES
        self._records_left = GLANCED_RECORDS

    def at(self, partition: Partition, records: memoryview) -> OpenedBatch | None:
        """None: it takes a thread."""
        size = len(records)
        is_plain = not records[CRC_START + 1] & CODEC_MASK
        if partition.config.opens_batches or (not is_plain and size > SMALL_BYTES):
            return None
        try:
            header = read_header(records)
            self._bytes_left -= size if is_plain else SMALL_PLAIN_BYTES
            self._records_left -= header.record_count
            if self._bytes_left < 0 or self._records_left < 0:
                return None
            body = plain_view(records, 0, header, max_bytes=size if is_plain else SMALL_PLAIN_BYTES)
        except CorruptBatch:
            return None
        return OpenedBatch(records) if is_regular(body, header.record_count) else None


def is_small(records: memoryview) -> bool:
    """Whether a batch may be opened on the loop, whatever is in it."""
    size = len(records)
    return size <= HEADER_BYTES or (size <= SMALL_BYTES and not records[CRC_START + 1] & CODEC_MASK)


def open_batch(
    records: memoryview, config: TopicConfig, *, trusted: bool = False, ids: SchemaIds | None = None
) -> OpenedBatch:
    """`records` may be anything that a client sent; whether it is a batch at all is found out elsewhere.

    `trusted`: we have made it ourselves.
    """
    try:
        header = read_header(records)
        view = plain_view(records, 0, header, max_bytes=decompression_cap(len(records)))
        if config.validates_records and not trusted and not is_regular(view, header.record_count):
            flaw = find_flaw(view, header.record_count)
            if flaw is not None:
                return OpenedBatch(records, flaw=flaw)
        if not config.opens_batches:
            return OpenedBatch(records)
        body = bytes(view)
        keyless: tuple[int, ...] = ()
        if config.is_compacted:
            keyless = tuple(keyless_record_indexes(body, header))
        if config.validates_schemas and ids is not None and (unknown := strangers(body, header, ids)):
            return OpenedBatch(records, keyless, strangers=unknown)
        if config.compression_type != "producer" and header.codec != CODECS[config.compression_type]:
            codec, level = CODECS[config.compression_type], _level(config)
            records = memoryview(recompress(body, header, codec, level))
        if config.delay_enabled:
            records = mark_waiting(records, read_header(records), body)
    except CorruptBatch as problem:
        return OpenedBatch(records, flaw=Flaw(0, str(problem)))
    return OpenedBatch(records, keyless)


def _level(config: TopicConfig) -> int | None:
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return levels.get(config.compression_type)


class Opener:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._places = asyncio.Semaphore(OPENED_AT_ONCE)

    async def open(
        self, records: memoryview, config: TopicConfig, ids: SchemaIds | None = None
    ) -> OpenedBatch:
        """`records` must be the caller's own copy: the connection's buffer is used again meanwhile."""
        async with self._places:
            return await self._runtime.run_blocking(lambda: open_batch(records, config, ids=ids))
