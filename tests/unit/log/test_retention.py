"""Retention and wrong clocks (S23, R52, S15)."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from log_bench import (
    DIRECTORY,
    SMALL,
    WALL_MS,
    data_batch,
    fill,
    fresh_log,
    marker,
    open_log,
    produced,
    put,
    read_all,
)

from headrace.log.config import DAY_MS, HOUR_MS, LogConfig
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.results import RollReason
from headrace.log.trusted_clock import TrustedClock

TEN_YEARS_MS = 3650 * DAY_MS
WEEK = replace(SMALL, segment_bytes=1 << 20, busy_segment_ms=DAY_MS * 365)
PASS_MS = 5 * 60_000


def daily_log(days: int, config: LogConfig = WEEK, fs: MemoryFileSystem | None = None) -> PartitionLog:
    """One segment per day, ending today (WALL_MS)."""
    fs = fs if fs is not None else MemoryFileSystem()
    start = WALL_MS - (days - 1) * DAY_MS
    log, _ = open_log(fs, config, wall_ms=start)
    log.start_epoch(0)
    log.apply_retention(start, 0, 0)
    for day in range(days):
        wall_ms = start + day * DAY_MS
        log.apply_retention(wall_ms, day * DAY_MS, 0)  # time passes, and the log sees it pass
        put(log, data_batch(wall_ms=wall_ms), wall_ms=wall_ms)
        log.roll(RollReason.REQUESTED)
    return log


def test_by_time() -> None:
    log = daily_log(10)
    now_ms = 9 * DAY_MS
    report = log.apply_retention(WALL_MS, now_ms, log.end_offset)
    assert report.deleted_segments == 2 and log.start_offset == 2
    assert log.apply_retention(WALL_MS + 1, now_ms + 1, log.end_offset).deleted_segments == 1
    assert log.apply_retention(WALL_MS + 2, now_ms + 2, log.end_offset).deleted_segments == 0


def test_by_size_and_never_the_active_segment() -> None:
    log = daily_log(10, replace(WEEK, retention_ms=-1, retention_bytes=250))
    fill(log, 1)
    size = log.size_bytes
    log.apply_retention(WALL_MS, 9 * DAY_MS, log.end_offset)
    assert 250 <= log.size_bytes < size
    log.config = replace(log.config, retention_bytes=0)
    log.apply_retention(WALL_MS, 9 * DAY_MS, log.end_offset)
    assert log.segment_count == 1 and read_all(log)


def test_unlimited_and_compacted_topics_keep_everything() -> None:
    for config in (replace(WEEK, retention_ms=-1), replace(WEEK, delete=False, compact=True)):
        log = daily_log(10, config)
        assert log.apply_retention(WALL_MS + TEN_YEARS_MS, 10**15, log.end_offset).deleted_segments == 0


def test_r52_nothing_above_the_high_watermark_or_of_an_open_transaction() -> None:
    log = daily_log(20)
    assert log.apply_retention(WALL_MS, 19 * DAY_MS, upto=3).deleted_segments == 3
    fs = MemoryFileSystem()
    log = fresh_log(replace(WEEK, retention_bytes=0), fs)
    for i in range(4):
        put(log, produced(7, i, transactional=True) if i == 1 else data_batch())
        log.roll(RollReason.REQUESTED)
    assert log.apply_retention(WALL_MS, 0, log.end_offset).deleted_segments == 1
    put(log, marker(7, commit=True))
    assert log.apply_retention(WALL_MS, 0, log.end_offset).deleted_segments == 3


def test_the_active_segment_is_rolled_when_all_of_it_is_expired() -> None:
    log = daily_log(1)
    put(log, data_batch(), wall_ms=WALL_MS)
    later, now_ms = WALL_MS, 0
    while not (log.segment_count == 1 and log.start_offset == log.end_offset):
        later, now_ms = later + DAY_MS, now_ms + DAY_MS
        log.apply_retention(later, now_ms, log.end_offset)
        assert later < WALL_MS + 12 * DAY_MS
    assert log.roll_reason is RollReason.RETENTION
    assert later > WALL_MS + 7 * DAY_MS


# ---- clocks


def test_s23_records_dated_into_the_past_do_not_vanish_on_arrival() -> None:
    log = fresh_log(WEEK)
    put(log, data_batch(wall_ms=WALL_MS - TEN_YEARS_MS))
    log.roll(RollReason.REQUESTED)
    assert log.apply_retention(WALL_MS + HOUR_MS, HOUR_MS, log.end_offset).deleted_segments == 0


def test_s23_records_dated_into_the_future_do_not_live_for_ever() -> None:
    log = fresh_log(WEEK)
    put(log, data_batch(wall_ms=WALL_MS + TEN_YEARS_MS))
    log.roll(RollReason.REQUESTED)
    put(log, data_batch())
    deleted, wall_ms, now_ms = 0, WALL_MS, 0
    for _ in range(9):
        wall_ms, now_ms = wall_ms + DAY_MS, now_ms + DAY_MS
        deleted += log.apply_retention(wall_ms, now_ms, log.end_offset).deleted_segments
    assert deleted >= 1


@pytest.mark.parametrize("restart", [False, True])
def test_s23_a_jump_of_ten_years_deletes_one_step_per_pass(restart: bool) -> None:
    """Hourly segments over seven days; the clock jumps. Each pass of five minutes may take one hour's worth."""
    fs = MemoryFileSystem()
    config = replace(WEEK, retention_ms=7 * DAY_MS)
    log, _ = open_log(fs, config, wall_ms=WALL_MS)
    log.start_epoch(0)
    for hour in range(7 * 24):
        wall_ms = WALL_MS + hour * HOUR_MS
        log.apply_retention(wall_ms, hour * HOUR_MS, 0)
        put(log, data_batch(wall_ms=wall_ms), wall_ms=wall_ms)
        log.roll(RollReason.REQUESTED)
    wall_ms, now_ms = WALL_MS + 7 * DAY_MS + TEN_YEARS_MS, 7 * 24 * HOUR_MS
    if restart:
        log.checkpoint()
        log.close(clean=False)
        log, _ = open_log(fs, config, wall_ms=wall_ms)
    deleted = [
        log.apply_retention(wall_ms + i * PASS_MS, now_ms + i * PASS_MS, log.end_offset) for i in range(12)
    ]
    assert all(report.deleted_segments <= 2 for report in deleted)
    assert sum(report.deleted_segments for report in deleted) <= 14
    # Somebody sets the clock right: what was not deleted is safe again at once.
    before = log.segment_count
    for i in range(12, 20):
        real_ms = WALL_MS + 7 * DAY_MS + i * PASS_MS
        assert log.apply_retention(real_ms, now_ms + i * PASS_MS, log.end_offset).deleted_segments <= 1
    assert log.segment_count >= before - 2


def test_s23_a_jump_back_deletes_nothing_and_returns_at_once() -> None:
    log = daily_log(10)
    now_ms = 9 * DAY_MS
    assert log.apply_retention(WALL_MS - TEN_YEARS_MS, now_ms, log.end_offset).deleted_segments == 0
    assert log.apply_retention(WALL_MS, now_ms + 1000, log.end_offset).deleted_segments == 2


def test_s23_calling_often_does_not_believe_faster() -> None:
    slow, fast = TrustedClock(WALL_MS), TrustedClock(WALL_MS)
    for clock in (slow, fast):
        clock.believe(WALL_MS, 0, HOUR_MS)
    wall_ms = WALL_MS + TEN_YEARS_MS
    slow.believe(wall_ms, PASS_MS, HOUR_MS)
    for ms in range(0, PASS_MS, 100):
        fast.believe(wall_ms, ms + 100, HOUR_MS)
    assert slow.highest_ms == WALL_MS + PASS_MS + HOUR_MS
    assert fast.highest_ms <= WALL_MS + 13 * PASS_MS


def test_producers_do_not_expire_by_a_jump() -> None:
    log = fresh_log()
    put(log, produced(7, 0))
    assert log.expire_producers(WALL_MS, 0, DAY_MS) == 0
    assert log.expire_producers(WALL_MS + TEN_YEARS_MS, 60_000, DAY_MS) == 0
    wall_ms = now_ms = 0
    for hour in range(1, 27):
        wall_ms, now_ms = WALL_MS + hour * HOUR_MS, hour * HOUR_MS
        log.expire_producers(wall_ms, now_ms, DAY_MS)
    assert len(log.producers) == 0


# ---- a full disk


class FullFileSystem(MemoryFileSystem):
    """No small file can be written until something was removed."""

    __slots__ = ("full",)

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    def write_file(self, path: str, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        super().write_file(path, data)

    def remove(self, path: str) -> None:
        super().remove(path)
        self.full = False


def test_s15_retention_works_on_a_full_disk() -> None:
    fs = FullFileSystem()
    log = daily_log(10, fs=fs)
    fs.full = True
    assert log.apply_retention(WALL_MS, 9 * DAY_MS, log.end_offset).deleted_segments == 2
    log.close(clean=False)
    assert open_log(fs, WEEK)[0].start_offset == 2


def test_s15_retention_on_a_disk_that_stays_full_leaves_all_as_it_was() -> None:
    class Stuck(FullFileSystem):
        def remove(self, path: str) -> None:
            MemoryFileSystem.remove(self, path)

    fs = Stuck()
    log = daily_log(10, fs=fs)
    fs.full = True
    segments = log.segment_count
    assert log.apply_retention(WALL_MS, 9 * DAY_MS, log.end_offset).deleted_segments == 0
    assert log.failed is None and log.segment_count == segments
    fs.full = False
    assert log.apply_retention(WALL_MS, 9 * DAY_MS, log.end_offset).deleted_segments == 2
    assert any(name.endswith(".deleted") for name in fs.list_dir(DIRECTORY))
