"""S21 with a real process and a real disk: kill -9 before each step of a compaction; the next start puts it right."""

from __future__ import annotations

import gc
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from log_bench import SMALL, TOPIC_ID, WALL_MS, data_batch, put, read_all, records_of

from headrace.broker.os_files import OsFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.results import RollReason

COMPACT = replace(SMALL, compact=True, delete=False, min_cleanable_dirty_ratio=0.0)
STEPS = ("open", "write_file", "rename", "remove", "sync_dir")
MOST_STEPS = 200


class DyingFileSystem:
    """The real one, until its steps are used up; then the process is gone."""

    def __init__(self, inner: OsFileSystem) -> None:
        self._inner = inner
        self.left: int | None = None

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name not in STEPS:
            return call

        def counted(*arguments: Any, **options: Any) -> Any:
            if self.left is not None:
                if self.left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                self.left -= 1
            return call(*arguments, **options)

        return counted


def compact_and_die(root: str, step: int, acknowledged: Path) -> None:
    fs = DyingFileSystem(OsFileSystem(root))
    log, _ = PartitionLog.open(fs, f"{root}/t-0", COMPACT, topic_id=TOPIC_ID, wall_ms=WALL_MS)
    log.start_epoch(0)
    for number in range(60):
        put(log, data_batch([b"%d" % number], keys=[b"k%d" % (number % 7)]))
        if number % 10 == 9:
            log.roll(RollReason.REQUESTED)
    log.sync()
    acknowledged.write_text("59")
    fs.left = step
    log.compact(WALL_MS, 0, log.end_offset, forced=True)
    put(log, data_batch([b"60"], keys=[b"k4"]))
    log.roll(RollReason.REQUESTED)
    log.sync()
    acknowledged.write_text("60")
    log.compact(WALL_MS, 0, log.end_offset, forced=True)
    log.purge_deleted(10**9)


def in_a_process_of_its_own(root: str, step: int, acknowledged: Path) -> int:
    """Its exit code; -9 when it was killed."""
    child = os.fork()
    if child == 0:
        # What other tests have left behind is not this child's to destroy: librdkafka's threads did not come along.
        gc.disable()
        try:
            compact_and_die(root, step, acknowledged)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def test_kill_9_before_each_step_of_a_compaction(tmp_path: Path) -> None:
    for step in range(MOST_STEPS):
        root = tmp_path / str(step)
        root.mkdir()
        told = tmp_path / f"{step}.acknowledged"
        code = in_a_process_of_its_own(str(root), step, told)
        assert code in (0, -signal.SIGKILL)
        check(root, int(told.read_text()), step)
        if code == 0:
            assert step > 15, "there were steps to be killed before"
            return
    raise AssertionError("it never got to the end")


def check(root: Path, acknowledged: int, step: int) -> None:
    fs = OsFileSystem(str(root))
    directory = f"{root}/t-0"
    log, _ = PartitionLog.open(fs, directory, COMPACT, topic_id=TOPIC_ID, wall_ms=WALL_MS)
    latest = {record.key: int(record.value or b"-1") for record in records_of(read_all(log))}
    for number in range(acknowledged - 6, acknowledged + 1):
        key = b"k4" if number == 60 else b"k%d" % (number % 7)
        assert latest[key] >= number, f"killed before step {step}: {key!r} is {latest.get(key)}"
    assert len(latest) == 7
    for offset in range(log.end_offset):
        log.read(offset, 100, log.end_offset)
    log.start_epoch(1)
    put(log, data_batch([b"99"], keys=[b"k0"]))
    log.roll(RollReason.REQUESTED)
    log.sync()
    log.compact(WALL_MS, 0, log.end_offset, forced=True)
    after = {record.key: int(record.value or b"-1") for record in records_of(read_all(log))}
    assert after == {**latest, b"k0": 99}
    assert not any(name.endswith((".cleaned", ".swap", ".tmp")) for name in fs.list_dir(directory))
    log.close(clean=True)
