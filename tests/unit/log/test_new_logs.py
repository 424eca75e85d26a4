"""F27: what a log costs that nothing was written to, counted in syncs; and that a power cut may keep any part of it (decision 0045)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from log_bench import data_batch, headers, put, read_all

from headrace.broker import os_files
from headrace.broker.os_files import OsFileSystem
from headrace.core.ports import FileSystem
from headrace.log.checkpoints import LogState, decode_state, encode_state, seal
from headrace.log.config import LogConfig
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.results import LogCorrupt, WrongTopic

TOPIC = bytes(range(16))
DIRECTORY = "/data/t/0"
SEGMENT = "00000000000000000000.log"


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    counted: list[int] = []
    fsync, fdatasync = os.fsync, os_files._sync_data
    monkeypatch.setattr(os, "fsync", lambda fd: (counted.append(fd), fsync(fd))[1])
    monkeypatch.setattr(os_files, "_sync_data", lambda fd: (counted.append(fd), fdatasync(fd))[1])
    yield counted


def opened(fs: FileSystem, directory: str = DIRECTORY, topic_id: bytes = TOPIC) -> PartitionLog:
    return PartitionLog.open(fs, directory, LogConfig(), topic_id=topic_id, wall_ms=1_000)[0]


def test_f27_a_hundred_new_partitions_cost_two_syncs_each_and_one_for_what_they_lie_in(
    tmp_path: Path, syncs: list[int]
) -> None:
    fs = OsFileSystem(str(tmp_path))
    fs.make_dirs(f"{tmp_path}/topics")
    del syncs[:]
    directories = [f"{tmp_path}/topics/t{topic}/{number}" for topic in range(25) for number in range(4)]
    fs.make_dirs(*directories)
    assert len(syncs) == 25 + 1, "each topic's directory, and the one of all topics"
    del syncs[:]
    logs = [opened(fs, directory) for directory in directories]
    for log in logs:
        log.start_epoch(3)
    assert len(syncs) == 2 * 100, "whose it is, and the directory"
    del syncs[:]
    for log in logs:
        assert log.begin_checkpoint(0) is None
        log.close()
    again = [opened(fs, directory) for directory in directories]
    for log in again:
        log.start_epoch(4)
    assert syncs == [], "one that nothing was written to is opened and closed without a sync"
    for log in again:
        log.close()


@pytest.mark.parametrize("kept", [*itertools.product(("whole", "torn", "gone"), ("empty", "gone"))])
def test_f27_whatever_a_power_cut_keeps_of_a_new_log_it_is_the_same_log(kept: tuple[str, str]) -> None:
    fs = MemoryFileSystem()
    opened(fs).close(clean=False)
    identity = fs.read_file(f"{DIRECTORY}/partition")
    if kept[0] != "whole":
        fs.remove(f"{DIRECTORY}/partition")
    if kept[0] == "torn":
        fs.write_file(f"{DIRECTORY}/partition", identity[:20])
    if kept[1] == "gone":
        fs.remove(f"{DIRECTORY}/{SEGMENT}")
    log = opened(fs)
    log.start_epoch(7)
    assert put(log, data_batch(), epoch=7).base_offset == 0
    log.close()
    assert [header.leader_epoch for header in headers(read_all(opened(fs)))] == [7]


def test_r34_a_new_log_of_another_topic_is_not_taken() -> None:
    fs = MemoryFileSystem()
    opened(fs).close(clean=False)
    with pytest.raises(WrongTopic):
        opened(fs, topic_id=bytes(16))


def test_s12_a_segment_with_batches_and_without_a_name_is_not_taken_for_a_new_log() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    log.start_epoch(1)
    put(log, data_batch(), epoch=1)
    log.close(clean=False)
    fs.remove(f"{DIRECTORY}/partition")
    with pytest.raises(LogCorrupt):
        opened(fs)


def test_r10_the_first_epoch_is_told_by_its_batches_and_the_next_one_is_on_disk_before_it_appends() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    log.start_epoch(5)
    put(log, data_batch(), epoch=5)
    log.close(clean=False)
    log = opened(fs)
    assert log.epochs.entries == [(5, 0)]
    log.start_epoch(6)
    log.close(clean=False)
    assert opened(fs).epochs.entries == [(5, 0), (6, 1)], "also without a batch in it"


def test_s25_from_the_first_index_on_epochs_are_in_their_file() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    log.start_epoch(5)
    put(log, data_batch(), epoch=5)
    assert not fs.exists(f"{DIRECTORY}/epochs")
    log.close()
    assert fs.exists(f"{DIRECTORY}/epochs")
    report = PartitionLog.open(fs, DIRECTORY, LogConfig(), topic_id=TOPIC, wall_ms=1_000)[1]
    assert report.scanned_bytes == 0 and report.clean


def test_a_state_of_an_earlier_release_is_read() -> None:
    data = encode_state(LogState(recovery_point=7, serial=3))
    payload = data.partition(b"\n")[2].replace(b'"epochs_kept": 1, ', b"")
    assert b"epochs_kept" not in payload
    assert decode_state(seal("log-state", 1, payload)) == LogState(recovery_point=7, serial=3)
