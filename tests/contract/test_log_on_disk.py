"""The log on real files behaves as it does in memory: same calls, same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from log_bench import SMALL, TOPIC_ID, WALL_MS, data_batch, derived, fill, marker, produced, put, read_all

from headrace.broker.os_files import OsFileSystem
from headrace.core.ports import FileSystem
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.results import RollReason

CONFIG = replace(SMALL, segment_bytes=900, compact=True, retention_bytes=4000, min_cleanable_dirty_ratio=0.0)


def _life(fs: FileSystem, directory: str) -> list[object]:
    """A log's life, and what it looked like on the way."""
    seen: list[object] = []

    def reopen(log: PartitionLog | None, clean: bool) -> PartitionLog:
        if log is not None:
            log.close(clean=clean)
        opened, report = PartitionLog.open(fs, directory, CONFIG, topic_id=TOPIC_ID, wall_ms=WALL_MS)
        seen.extend((read_all(opened), derived(opened), report.scanned_bytes, opened.start_offset))
        return opened

    log = reopen(None, clean=False)
    log.start_epoch(1)
    for i in range(20):
        put(log, data_batch([b"%d" % i], keys=[b"k%d" % (i % 4)]))
        put(log, produced(7, i, transactional=True))
        put(log, marker(7, commit=i % 2 == 0))
    log.sync()
    log = reopen(log, clean=True)
    fill(log, 3)
    log = reopen(log, clean=False)
    log.truncate(50)
    log = reopen(log, clean=False)
    log.roll(RollReason.REQUESTED)
    log.sync()
    seen.append(log.compact(WALL_MS, 0, log.end_offset, forced=True))
    log = reopen(log, clean=False)
    fill(log, 20)
    log.apply_retention(WALL_MS, 0, log.end_offset)
    log.purge_deleted(0)
    log.purge_deleted(10**9)
    log = reopen(log, clean=True)
    log.truncate_fully_and_start_at(1000)
    reopen(log, clean=True).close()
    seen.append(sorted(fs.list_dir(directory)))
    return seen


def test_the_same_life_in_memory_and_on_disk(tmp_path: Path) -> None:
    on_disk = _life(OsFileSystem(str(tmp_path)), f"{tmp_path}/orders-0")
    assert on_disk == _life(MemoryFileSystem(), "/data/orders-0")
