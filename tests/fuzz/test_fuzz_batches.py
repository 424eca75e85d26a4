"""Mutated record batches through the append path and every reader: CorruptBatch or a refusal, nothing else (S1, X11)."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import pytest
from aiokafka.record.memory_records import MemoryRecords

from headrace.broker.batch_opening import open_batch
from headrace.cluster.configs import TopicConfig
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.log.config import LogConfig
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.results import Accept, AppendResult
from headrace.records.batch import HEADER_BYTES, CorruptBatch, scan
from headrace.records.batch import seal as seal_batch
from headrace.records.opened import OpenBatch
from headrace.records.read import plain_body, read_records
from headrace.records.validate import keyless_record_indexes, validate_produced

sys.path.insert(0, str(Path(__file__).parent))
from frames import MUTATIONS, Frames

BATCHES = int(os.environ.get("HEADRACE_FUZZ_FRAMES", "20000"))
SEED = int(os.environ.get("HEADRACE_FUZZ_SEED", "1"))
MAX_BYTES = 1 << 20
SAMPLED = 0.1
CONFIG = TopicConfig()
REFUSALS = {
    ErrorKind.CORRUPT_MESSAGE, ErrorKind.INVALID_RECORD, ErrorKind.MESSAGE_TOO_LARGE, ErrorKind.INVALID_TIMESTAMP,
    ErrorKind.UNSUPPORTED_COMPRESSION_TYPE, ErrorKind.RECORD_LIST_TOO_LARGE,
}  # fmt: skip

pytestmark = pytest.mark.timeout(120 + BATCHES // 500)


def new_log() -> PartitionLog:
    fs = MemoryFileSystem()
    fs.make_dirs("/log")
    log, _ = PartitionLog.open(
        fs, "/log/0", LogConfig(segment_bytes=1 << 20), topic_id=b"\x01" * 16, wall_ms=1
    )
    log.start_epoch(0)
    return log


def spoiled(frames: Frames, dice: random.Random) -> bytearray:
    batch = bytes(frames.batch())
    for _ in range(dice.choice((1, 1, 2, 4))):
        batch = dice.choice(MUTATIONS)(dice, batch)
    spoilt = bytearray(batch)
    if dice.random() < 0.6 and len(spoilt) > HEADER_BYTES:
        # With a right length and CRC the lie is only found by whoever opens the batch.
        spoilt[8:12] = (len(spoilt) - 12).to_bytes(4, "big")
        spoilt[16] = 2
        seal_batch(spoilt, 0, len(spoilt))
    return spoilt


def open_every_way(batch: bytearray) -> None:
    for position, header in scan(batch):
        for opening in (
            lambda: list(read_records(batch, position, max_bytes=MAX_BYTES)),  # noqa: B023
            lambda: keyless_record_indexes(plain_body(batch, position, header, max_bytes=MAX_BYTES), header),  # noqa: B023
            lambda: OpenBatch(batch, position, max_bytes=MAX_BYTES).find(header.base_offset),  # noqa: B023
        ):
            try:
                opening()
            except CorruptBatch:
                pass


def test_batches() -> None:
    frames, dice = Frames(SEED), random.Random(SEED)
    log = new_log()
    appended = sampled = 0
    for number in range(BATCHES):
        batch = spoiled(frames, dice)
        started = time.thread_time()
        try:
            open_every_way(batch)
        except CorruptBatch:
            pass
        wall_ms = int(time.time() * 1000)
        header = validate_produced(
            batch, produce_version=9, max_message_bytes=100_000, segment_bytes=1 << 20,
            earliest_timestamp=wall_ms - 10**15, latest_timestamp=wall_ms + 3_600_000,
        )  # fmt: skip
        if isinstance(header, Rejected):
            assert header.kind in REFUSALS, header
        elif open_batch(memoryview(batch), CONFIG).flaw is not None:
            pass
        elif isinstance(log.check_producer(header), Accept):
            # F9: what is stored can be read, by us and by others.
            found = read_records(batch)
            assert [record.offset for record in found] == list(range(header.record_count)), batch.hex()
            if dice.random() < SAMPLED:
                sampled += 1
                try:
                    assert read_by_aiokafka(batch) == [record.value for record in found], batch.hex()
                except (
                    UnicodeDecodeError
                ):  # Kafka takes any bytes for the name of a header, aiokafka does not
                    assert any(
                        max(name, default="") >= "\udc80" for record in found for name, _ in record.headers
                    )
            result = log.append(memoryview(batch), header, 0, wall_ms)
            assert isinstance(result, AppendResult)
            appended += 1
            held = log.read(result.base_offset, 1, log.end_offset)
            assert not isinstance(held, Rejected) and bytes(held) == bytes(batch)
        assert time.thread_time() - started < 3.0, batch.hex()
        if number % 20_000 == 19_999:
            log = new_log()
    assert appended > BATCHES // 100, "the fuzz reaches the log"
    assert sampled, "a real client's reader was asked"


def read_by_aiokafka(batch: bytearray) -> list[bytes | None]:
    (found,) = iter(MemoryRecords(bytes(batch)).next_batch, None)
    return [record.value for record in found]
