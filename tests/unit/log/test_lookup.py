"""Offsets by timestamp (kafka.md 8, trap 18)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from log_bench import SMALL, WALL_MS, data_batch, fresh_log, marker, open_log, produced, put

from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.results import FoundOffset, StartReason
from headrace.records.batch import HEADER_BYTES, read_header, seal


def _log(*batches: list[int], segment_bytes: int = 4096) -> PartitionLog:
    log = fresh_log(replace(SMALL, segment_bytes=segment_bytes))
    for timestamps in batches:
        put(log, data_batch([b"v"] * len(timestamps), timestamps=timestamps))
    return log


@pytest.mark.parametrize("segment_bytes", [100, 4096])
@pytest.mark.parametrize(
    ("timestamp", "upto", "offset"),
    [
        (0, 9, 0),
        (10, 9, 0),
        (11, 9, 1),  # inside a batch
        (25, 9, 2),
        (30, 9, 4),  # timestamps go back and forth: the first that reaches it
        (31, 9, 7),
        (41, 9, None),
        (31, 7, None),  # nothing at or above `upto`
        (31, 8, 7),
    ],
)
def test_first_at_or_after(segment_bytes: int, timestamp: int, upto: int, offset: int | None) -> None:
    log = _log([10, 20, 25], [5, 30], [12], [30, 40, 40], segment_bytes=segment_bytes)
    found = log.offset_for_time(timestamp, upto)
    assert (None if found is None else found.offset) == offset


def test_the_epoch_is_that_of_the_record() -> None:
    log = fresh_log()
    log.start_epoch(3)
    put(log, data_batch(timestamps=[10]))
    log.start_epoch(5)
    put(log, data_batch(timestamps=[20]))
    assert log.offset_for_time(5, 2) == FoundOffset(0, 10, 3)
    assert log.offset_for_time(15, 2) == FoundOffset(1, 20, 5)


def test_deleted_records_are_not_found() -> None:
    log = _log([10, 20, 25], [5, 30])
    log.advance_start(1, StartReason.DELETE_RECORDS)
    assert log.offset_for_time(0, 5) == FoundOffset(1, 20, 0)
    log.advance_start(3, StartReason.DELETE_RECORDS)
    assert log.max_timestamp_offset(4) == FoundOffset(3, 5, 0)


def test_log_append_time_counts_for_every_record() -> None:
    log = fresh_log(replace(SMALL, log_append_time=True))
    put(log, data_batch([b"a", b"b"], timestamps=[1, 2]), wall_ms=500)
    assert log.offset_for_time(3, 2) == FoundOffset(0, 500, 0)


def test_a_header_that_promises_more_than_its_records_hold() -> None:
    batch = data_batch(timestamps=[10])
    batch[35:43] = (99).to_bytes(8, "big")  # maxTimestamp, as a careless client might send it
    seal(batch, 0, len(batch))
    log = fresh_log()
    put(log, batch)
    put(log, data_batch(timestamps=[50]))
    assert log.offset_for_time(20, 2) == FoundOffset(1, 50, 0)
    assert log.max_timestamp_offset(2) == FoundOffset(1, 50, 0)


def test_a_batch_that_can_not_be_opened_has_no_time() -> None:
    batch = data_batch(timestamps=[10])
    batch[HEADER_BYTES] ^= 0x7F  # the record's length; the client's CRC covers this nonsense
    seal(batch, 0, len(batch))
    log = fresh_log()
    put(log, batch)
    assert log.offset_for_time(0, 1) is None and log.max_timestamp_offset(1) is None


@pytest.mark.parametrize("segment_bytes", [100, 4096])
@pytest.mark.parametrize(("upto", "offset"), [(9, 7), (8, 7), (7, 4), (4, 2), (1, 0), (0, None)])
def test_highest_timestamp(segment_bytes: int, upto: int, offset: int | None) -> None:
    log = _log([10, 20, 25], [5, 30], [12], [30, 40, 40], segment_bytes=segment_bytes)
    found = log.max_timestamp_offset(upto)
    assert (None if found is None else found.offset) == offset


def test_answers_are_the_same_after_a_restart() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(replace(SMALL, segment_bytes=400), fs)
    for i in range(60):
        put(log, data_batch([b"v"], timestamps=[WALL_MS + i * 37 % 50]))
    questions = range(WALL_MS - 1, WALL_MS + 52)
    expected = [log.offset_for_time(ts, upto) for ts in questions for upto in (20, 41, 60)]
    log.close()
    again, _ = open_log(fs, log.config)
    assert [again.offset_for_time(ts, upto) for ts in questions for upto in (20, 41, 60)] == expected


def test_transactions_and_markers_count_like_records() -> None:
    log = fresh_log()
    put(log, produced(7, 0, transactional=True))
    put(log, marker(7, commit=True))
    assert read_header(marker(7, commit=True)).is_control
    assert log.offset_for_time(WALL_MS, 2) == FoundOffset(0, WALL_MS, 0)
