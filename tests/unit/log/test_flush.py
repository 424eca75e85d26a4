from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from log_bench import SMALL, WALL_MS, data_batch, fill, fresh_log, open_log, put, read_all

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.log.memory_fs import MemoryFile, MemoryFileSystem
from headrace.log.results import RollReason
from headrace.records.batch import read_header


def test_s5_durable_end_moves_only_when_the_flush_is_done() -> None:
    log = fresh_log()
    assert log.begin_flush() is None
    fill(log, 2)
    flush = log.begin_flush()
    assert flush is not None and flush.end_offset == 4 and len(flush.files) == 1
    fill(log, 1)
    assert log.durable_end == 0
    assert log.begin_flush() is None, "one at a time"
    log.flush_done(flush)
    assert log.durable_end == 4
    again = log.begin_flush()
    assert again is not None and again.end_offset == 6


def test_s19_rolled_segments_are_synced_in_order_before_anything_counts() -> None:
    log = fresh_log()
    fill(log, 2)
    log.roll(RollReason.REQUESTED)
    fill(log, 1)
    log.roll(RollReason.REQUESTED)
    flush = log.begin_flush()
    assert flush is not None
    assert [file.path[-6:-4] for file in flush.files] == ["00", "04"], "oldest first; an empty one needs none"
    log.flush_done(flush)
    assert log.durable_end == 6


def test_s8_files_stay_open_from_write_to_sync() -> None:
    log = fresh_log()
    fill(log, 2)
    flush = log.begin_flush()
    assert flush is not None
    fill(log, 60)  # rolls meanwhile
    log.truncate(2)
    for file in flush.files:
        file.sync()  # would raise on a closed file
    log.flush_done(flush)
    for file in flush.files:
        if file.path.endswith("0" * 20 + ".log"):
            file.sync()  # it is the active one again


def test_r23_a_flush_that_began_before_a_truncation_vouches_for_nothing_after_it() -> None:
    log = fresh_log()
    fill(log, 4)
    flush = log.begin_flush()
    assert flush is not None
    log.truncate(4)
    assert log.durable_end == 0 or log.durable_end <= 4
    fill(log, 2)
    log.flush_done(flush)
    assert log.durable_end <= 4, "the batches at 4 are new and unsynced"
    log.sync()
    assert log.durable_end == 8


def test_s7_a_failed_sync_is_final() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(fs=fs)
    fill(log, 1)
    flush = log.begin_flush()
    assert flush is not None
    log.flush_failed(flush, OSError(errno.EIO, "Input/output error"))
    assert log.failed is not None and log.durable_end == 0
    assert log.begin_flush() is None, "never tried again"
    batch = data_batch()
    result = log.append(batch, read_header(batch), 0, WALL_MS)
    assert isinstance(result, Rejected) and result.kind is ErrorKind.KAFKA_STORAGE_ERROR
    result = log.append_replicated(bytes(batch), WALL_MS)
    assert isinstance(result, Rejected) and result.kind is ErrorKind.KAFKA_STORAGE_ERROR
    log.close(clean=True)
    again, report = open_log(fs)
    assert report.scanned_bytes > 0, "a failed log is never taken for clean"
    assert again.failed is None


class FailingFileSystem(MemoryFileSystem):
    """Appends to paths that end in `suffix` fail with `code` while it is set."""

    __slots__ = ("code", "leaves_bytes", "suffix")

    def __init__(self) -> None:
        super().__init__()
        self.code = 0
        self.suffix = ".log"
        self.leaves_bytes = False

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> MemoryFile:
        if (
            create
            and self.code in (errno.ENOSPC, errno.EMFILE)
            and not self.exists(path)
            and path.endswith(self.suffix)
        ):
            raise OSError(self.code, "no room", path)
        return _FailingFile(
            self, path, super().open(path, create=create, writable=writable)._content, writable
        )


class _FailingFile(MemoryFile):
    __slots__ = ()

    def append(self, buffers):  # type: ignore[no-untyped-def]
        fs = self._disk
        assert isinstance(fs, FailingFileSystem)
        if fs.code and self.path.endswith(fs.suffix):
            if fs.leaves_bytes:
                super().append([b"half"])
            raise OSError(fs.code, "injected", self.path)
        super().append(buffers)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_s15_a_full_disk_refuses_and_recovers_without_a_restart(code: int) -> None:
    fs = FailingFileSystem()
    log = fresh_log(fs=fs)
    fill(log, 3)
    fs.code = code
    batch = data_batch()
    result = log.append(batch, read_header(batch), 0, WALL_MS)
    assert isinstance(result, Rejected) and result.kind is ErrorKind.KAFKA_STORAGE_ERROR
    assert log.failed is None and log.end_offset == 6
    before = read_all(log)
    fs.code = 0
    assert put(log, data_batch()).base_offset == 6
    assert read_all(log).startswith(before)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_s15_s17_no_room_for_a_new_segment(code: int) -> None:
    fs = FailingFileSystem()
    log = fresh_log(replace(SMALL, segment_bytes=600), fs)
    fill(log, 2)
    fs.code = code
    batch = data_batch([b"x" * 300])
    result = log.append(batch, read_header(batch), 0, WALL_MS)
    assert isinstance(result, Rejected) and result.kind is ErrorKind.KAFKA_STORAGE_ERROR
    assert log.failed is None
    fs.code = 0
    assert put(log, data_batch([b"x" * 300])).base_offset == 4
    assert log.segment_count == 2


def test_s15_full_disk_when_the_caches_of_a_rolled_segment_are_written() -> None:
    fs = FailingFileSystem()
    fs.suffix = ".index"
    log = fresh_log(replace(SMALL, segment_bytes=600), fs)
    fs.code = errno.ENOSPC
    fill(log, 10)
    assert log.failed is None and log.segment_count > 2
    expected = read_all(log)
    log.sync()
    log.checkpoint()
    log.close(clean=False)
    fs.code = 0
    again, report = open_log(fs)
    assert read_all(again) == expected
    assert any(name.endswith(".index") for name in report.rebuilt)


@pytest.mark.parametrize(("code", "leaves_bytes"), [(errno.EIO, False), (errno.ENOSPC, True)])
def test_s7_s11_other_write_errors_and_half_writes_are_final(code: int, leaves_bytes: bool) -> None:
    fs = FailingFileSystem()
    log = fresh_log(fs=fs)
    fill(log, 1)
    fs.code, fs.leaves_bytes = code, leaves_bytes
    batch = data_batch()
    assert isinstance(log.append(batch, read_header(batch), 0, WALL_MS), Rejected)
    assert log.failed is not None
    fs.code = 0
    assert isinstance(log.append(batch, read_header(batch), 0, WALL_MS), Rejected)
    assert len(read_all(log)) > 0, "reads go on"


def test_s6_the_recovery_point_never_passes_what_was_synced() -> None:
    log = fresh_log()
    fill(log, 3)
    log.checkpoint()
    assert log.checkpointed.recovery_point == 0
    log.sync()
    fill(log, 1)
    log.checkpoint(high_watermark=4)
    assert (log.checkpointed.recovery_point, log.checkpointed.high_watermark) == (6, 4)
    assert log.begin_checkpoint(high_watermark=4) is None, "nothing new"


def test_a_checkpoint_under_way_is_not_overtaken_by_an_older_one() -> None:
    """A truncation writes the state while the pool still writes the one from before it; the newer counts."""
    fs = MemoryFileSystem()
    log = fresh_log(fs=fs)
    fill(log, 10)
    log.sync()
    checkpoint = log.begin_checkpoint()
    assert checkpoint is not None
    log.truncate(8)
    for file in checkpoint.files:
        fs.write_file(file.path, file.data)  # the pool gets to it only now
    again, report = open_log(fs)  # and the machine dies before `checkpoint_done`
    assert again.end_offset == 8 and not report.quarantined
    assert again.checkpointed.recovery_point == 8
    log.checkpoint_done(checkpoint)
    assert log.checkpointed.recovery_point <= 8


def test_a_failed_checkpoint_is_fatal_unless_the_disk_is_full() -> None:
    log = fresh_log()
    fill(log, 1)
    log.sync()
    checkpoint = log.begin_checkpoint()
    assert checkpoint is not None
    log.checkpoint_failed(checkpoint, OSError(errno.ENOSPC, "full"))
    assert log.failed is None
    again = log.begin_checkpoint()
    assert again is not None, "still to be written"
    log.checkpoint_failed(again, OSError(errno.EIO, "broken"))
    assert log.failed is not None


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_checkpoint_that_failed_may_have_been_written(error: int) -> None:
    """R23, S6, simulation seed 500081: only the sync of the directory failed, so the state was there after all. A truncation
    that then found nothing to lower left a log that ended below its recovery point, and stayed offline for ever."""
    fs = MemoryFileSystem()
    log = fresh_log(fs=fs)
    fill(log, 4)
    log.sync()
    log.checkpoint()
    fill(log, 6)
    log.sync()
    checkpoint = log.begin_checkpoint()
    assert checkpoint is not None
    for file in checkpoint.files:
        fs.write_file(file.path, file.data)
    log.checkpoint_failed(checkpoint, OSError(error, "the directory"))
    if error == errno.ENOSPC:
        assert log.truncate(10) == 10
    else:
        with pytest.raises(OSError, match="the directory"):
            log.truncate(10)
    again, report = open_log(fs)
    assert again.end_offset == (10 if error == errno.ENOSPC else 20) and not report.quarantined
