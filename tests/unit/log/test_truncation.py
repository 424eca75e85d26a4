"""Cutting a log back (R23, R26) and cutting its beginning off (S20)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from log_bench import (
    DIRECTORY,
    SMALL,
    WALL_MS,
    data_batch,
    fill,
    fresh_log,
    headers,
    marker,
    open_log,
    produced,
    put,
    read_all,
)

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.results import ACCEPT, Duplicate, RollReason, StartReason
from headrace.records.batch import read_header


@pytest.mark.parametrize("segment_bytes", [400, 4096, 1 << 20])
def test_r23_truncation_at_every_offset(segment_bytes: int) -> None:
    config = replace(SMALL, segment_bytes=segment_bytes)
    model = fresh_log(config)
    fill(model, 20)
    whole = read_all(model)
    batches = headers(whole)
    for offset in range(41):
        fs = MemoryFileSystem()
        log = fresh_log(config, fs)
        fill(log, 20)
        if offset % 2:
            log.sync()
            log.checkpoint(high_watermark=30)
        end = log.truncate(offset)
        assert end == offset - offset % 2 == log.end_offset, (
            "batches of two: a cut inside one takes all of it"
        )
        kept = sum(header.size for header in batches if header.next_offset <= offset)
        assert read_all(log) == whole[:kept]
        assert log.durable_end <= end
        assert log.checkpointed.recovery_point <= end and log.checkpointed.high_watermark <= end
        fill(log, 3)
        again, report = open_log(fs, config)
        assert again.end_offset == end + 6 and report.truncated_bytes == 0
        assert read_all(again) == read_all(log)


def test_r23_epochs_producers_and_transactions_go_back_too() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(replace(SMALL, segment_bytes=500), fs)
    log.start_epoch(1)
    put(log, produced(7, 0))  # 0
    put(log, produced(9, 0, transactional=True))  # 1
    fill(log, 4)  # 2-9
    log.start_epoch(2)
    put(log, produced(7, 1))  # 10
    put(log, marker(9, commit=False))  # 11
    put(log, produced(9, 1, transactional=True))  # 12
    fill(log, 4)
    assert log.first_unstable_offset == 12
    assert [entry.first_offset for entry in log.aborted_transactions(0, 100)] == [1]
    assert log.truncate(10) == 10
    assert log.epochs.entries == [(1, 0)]
    assert log.check_producer(read_header(produced(7, 0))) == Duplicate(0, 0, WALL_MS)
    assert log.check_producer(read_header(produced(7, 1))) == ACCEPT, (
        "the second batch is gone and may come again"
    )
    assert log.first_unstable_offset == 1, "its abort is gone, so it is open again"
    assert log.aborted_transactions(0, 100) == []
    assert not any(name.endswith(".snapshot") and int(name[:20]) > 10 for name in fs.list_dir(DIRECTORY))
    again, _ = open_log(fs, log.config)
    assert again.first_unstable_offset == 1 and again.epochs.entries == [(1, 0)]


def test_whoever_holds_the_producer_table_sees_the_truncation() -> None:
    log = fresh_log()
    table = log.producers
    put(log, produced(7, 0))
    log.truncate(0)
    assert log.producers is table and len(table) == 0


def test_truncation_into_a_gap_keeps_the_offset() -> None:
    fs = MemoryFileSystem()
    leader = fresh_log()
    fill(leader, 6)
    data = read_all(leader)
    size = headers(data)[0].size
    holey = data[: 2 * size] + data[4 * size :]  # 4-7 are missing
    log = fresh_log(replace(SMALL, compact=True), fs)
    log.append_replicated(holey, 1)
    assert log.truncate(6) == 6
    log.close(clean=False)
    again, _ = open_log(fs, log.config)
    assert again.end_offset == 6
    assert put(again, data_batch()).base_offset == 6


def test_truncating_beyond_the_end_or_below_the_start() -> None:
    log = fresh_log()
    fill(log, 5)
    assert log.truncate(99) == 10
    assert log.truncate(10) == 10
    log.advance_start(6, StartReason.DELETE_RECORDS)
    assert log.truncate(4) == 4
    assert (log.start_offset, log.end_offset) == (4, 4)
    assert put(log, data_batch()).base_offset == 4


@pytest.mark.parametrize("offset", [500, 3, 0])
def test_r26_restart_at_the_leaders_start(offset: int) -> None:
    fs = MemoryFileSystem()
    log = fresh_log(replace(SMALL, segment_bytes=500), fs)
    put(log, produced(7, 0, transactional=True))
    put(log, marker(7, commit=False))
    fill(log, 10)
    log.sync()
    log.checkpoint(high_watermark=8)
    log.truncate_fully_and_start_at(offset)
    for current in (log, open_log(fs, log.config)[0]):
        assert (current.start_offset, current.end_offset) == (offset, offset)
        assert current.epochs.latest == -1 and len(current.producers) == 0
        assert current.aborted_transactions(0, 1000) == []
        assert current.read(offset, 100, offset + 10) == b""
    again = open_log(fs, log.config)[0]
    again.start_epoch(3)
    assert put(again, data_batch()).base_offset == offset
    # The old segments wait as .deleted, and go.
    assert any(name.endswith(".deleted") for name in fs.list_dir(DIRECTORY))
    assert again.purge_deleted(0) == 0
    assert again.purge_deleted(SMALL.file_delete_delay_ms) > 0
    assert not any(name.endswith(".deleted") for name in fs.list_dir(DIRECTORY))


@pytest.mark.parametrize("offset", [500, 3, 0])
def test_f72_a_replica_that_starts_over_knows_only_what_comes_then(offset: int) -> None:
    """With a marker too many in the index, what is aborted afterwards is shown as if it had been committed (R48)."""
    log = fresh_log()
    for number in range(3):
        put(log, produced(7, number, transactional=True))
        put(log, marker(7, commit=False))
    log.truncate_fully_and_start_at(offset)
    leader = fresh_log()
    leader.truncate_fully_and_start_at(offset)
    leader.start_epoch(1)
    for batch in (
        produced(7, 0, transactional=True), marker(7, commit=False), produced(8, 0, transactional=True), marker(8, commit=False),
    ):  # fmt: skip
        put(leader, batch)
        data = leader.read(log.end_offset, 1 << 20, leader.end_offset)
        assert not isinstance(data, Rejected)
        assert not isinstance(log.append_replicated(data, WALL_MS), Rejected)
    found = [
        (entry.producer_id, entry.first_offset - offset)
        for entry in log.aborted_transactions(offset, offset + 9)
    ]
    assert found == [(7, 0), (8, 2)]
    assert [entry.producer_id for entry in log.aborted_transactions(offset + 2, offset + 9)] == [8]
    assert log.aborted_transactions(offset, offset + 9) == leader.aborted_transactions(offset, offset + 9)


@pytest.mark.parametrize("in_flush", [False, True])
def test_f74_a_segment_that_is_active_again_stays_the_writers(in_flush: bool) -> None:
    """Cut back into a segment that was rolled and not yet synced: the flush that was to hand it to readers must not."""
    log = fresh_log()
    fill(log, 3)
    log.roll(RollReason.REQUESTED)
    fill(log, 3)
    flush = log.begin_flush() if in_flush else None
    assert log.truncate(4) == 4
    if flush is None:
        assert put(log, data_batch()).base_offset == 4
        flush = log.begin_flush()
    assert flush is not None
    for file in flush.files:
        file.sync()
    log.flush_done(flush)
    at = log.end_offset
    assert put(log, data_batch([b"after"])).base_offset == at
    log.sync()
    assert log.durable_end == log.end_offset == at + 1
    assert [header.base_offset for header in headers(read_all(log))][-1] == at
    log.roll(RollReason.REQUESTED)
    assert put(log, data_batch()).base_offset == at + 1


# ---- the beginning


def test_delete_records() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(replace(SMALL, segment_bytes=500), fs)
    fill(log, 10)
    assert log.delete_records(7) == 7
    result = log.read(6, 100, 20)
    assert isinstance(result, Rejected) and result.kind is ErrorKind.OFFSET_OUT_OF_RANGE
    data = log.read(7, 1, 20)
    assert not isinstance(data, Rejected) and headers(data)[0].base_offset == 6, "the batch that holds 7"
    assert log.delete_records(5) == 7, "never back"
    for bad in (21, -2):
        result = log.delete_records(bad)  # type: ignore[assignment]
        assert isinstance(result, Rejected) and result.kind is ErrorKind.OFFSET_OUT_OF_RANGE
    log.close(clean=False)
    again, _ = open_log(fs, log.config)
    assert again.start_offset == 7, "it is on disk before the answer"
    assert again.segment_count < log.segment_count, "what is below the start went at the restart"
    assert again.delete_records(20) == 20
    again.close(clean=False)
    assert open_log(fs, log.config)[0].start_offset == 20


def test_epochs_and_aborted_follow_the_start() -> None:
    log = fresh_log()
    put(log, produced(7, 0, transactional=True))
    put(log, marker(7, commit=False))
    log.start_epoch(4)
    fill(log, 3)
    log.delete_records(4)
    assert log.aborted_transactions(0, 100) == []
    assert log.epochs.entries == [(0, 0), (4, 2)], (
        "the batches are still in the file, and checked against this"
    )
    log.config = replace(SMALL, retention_bytes=0)
    log.roll(RollReason.REQUESTED)
    put(log, data_batch())
    log.apply_retention(0, 0, log.end_offset)
    assert log.epochs.entries == [(4, 8)]


def test_s20_a_reader_is_served_until_the_rename_and_files_go_after_the_delay() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(replace(SMALL, segment_bytes=500, retention_bytes=0), fs)
    fill(log, 10)
    segments = log.segment_count
    report = log.apply_retention(0, 0, log.end_offset)
    assert (report.deleted_segments, log.segment_count) == (segments - 1, 1)
    waiting = [name for name in fs.list_dir(DIRECTORY) if name.endswith(".deleted")]
    assert len(waiting) == segments - 1
    assert log.purge_deleted(1000) == 0
    assert log.purge_deleted(1000 + SMALL.file_delete_delay_ms - 1) == 0
    assert log.purge_deleted(1000 + SMALL.file_delete_delay_ms) == segments - 1
    log.close(clean=False)
    assert open_log(fs, log.config)[0].start_offset == report.start_offset


def test_a_segment_that_is_deleted_while_its_sync_is_under_way() -> None:
    log = fresh_log(replace(SMALL, segment_bytes=500, retention_bytes=0))
    fill(log, 4)
    flush = log.begin_flush()
    assert flush is not None
    log.roll(RollReason.REQUESTED)
    log.apply_retention(0, 0, log.end_offset)
    for file in flush.files:
        file.sync()
    log.flush_done(flush)
    assert log.durable_end == 8
