"""S15: a log that is to become shorter on a full disk stays as it was, or becomes so, and is in service either way (F23)."""

from __future__ import annotations

import errno

import pytest
from log_bench import WALL_MS, data_batch, fresh_log, open_log

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.log.epochs import EpochStart
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.results import AppendResult
from headrace.log.state_files import EPOCHS_FILE, STATE_FILE
from headrace.records.batch import stamp


class FullFor(MemoryFileSystem):
    """Files of these names can't be written."""

    names: tuple[str, ...] = ()
    code = errno.ENOSPC

    def write_file(self, path: str, data: bytes) -> None:
        if path.endswith(self.names) and self.names:
            raise OSError(self.code, "injected", path)
        super().write_file(path, data)


def replicated(offset: int, epoch: int) -> memoryview:
    batch = data_batch()
    stamp(batch, 0, offset, epoch)
    return memoryview(batch)


def taken(log: PartitionLog, *batches: tuple[int, int]) -> None:
    for offset, epoch in batches:
        assert isinstance(log.append_replicated(replicated(offset, epoch), WALL_MS), AppendResult)
    log.sync()


@pytest.fixture
def fs() -> FullFor:
    return FullFor()


@pytest.fixture
def log(fs: FullFor) -> PartitionLog:
    """Five batches of two epochs, and a state on disk that says so."""
    log = fresh_log(fs=fs)
    taken(log, (0, 1), (1, 1), (2, 2), (3, 2), (4, 2))
    log.checkpoint()
    return log


def test_s15_a_truncation_that_cannot_begin_changes_nothing(fs: FullFor, log: PartitionLog) -> None:
    fs.names = (STATE_FILE,)
    with pytest.raises(OSError):
        log.truncate(2)
    assert (log.failed, log.end_offset) == (None, 5)
    assert open_log(fs)[0].end_offset == 5
    fs.names = ()
    assert log.truncate(2) == 2
    taken(log, (2, 3))
    again, report = open_log(fs)
    assert (again.end_offset, report.truncated_bytes) == (3, 0)
    assert again.epochs.entries == [EpochStart(1, 0), EpochStart(3, 2)]


def test_s15_the_epochs_of_what_was_cut_are_written_before_anything_is_appended(
    fs: FullFor, log: PartitionLog
) -> None:
    fs.names = (EPOCHS_FILE,)
    assert log.truncate(2) == 2
    assert log.failed is None and log.epochs.entries == [EpochStart(1, 0)]
    refused = log.append_replicated(replicated(2, 1), WALL_MS)
    assert isinstance(refused, Rejected) and "full" in refused.detail and log.end_offset == 2
    fs.names = ()
    taken(log, (2, 1), (3, 3))
    again, report = open_log(fs)
    assert (again.end_offset, report.truncated_bytes) == (4, 0)
    assert again.epochs.entries == [EpochStart(1, 0), EpochStart(3, 3)]


def test_s15_a_crash_before_they_are_written_is_one_between_the_cut_and_them(
    fs: FullFor, log: PartitionLog
) -> None:
    """The file says too much: an epoch that begins where the log ends began nothing (R10)."""
    fs.names = (EPOCHS_FILE,)
    assert log.truncate(2) == 2
    fs.names = ()
    crashed, _ = open_log(fs)
    assert (crashed.end_offset, crashed.epochs.epoch_at(1)) == (2, 1)
    taken(crashed, (2, 1), (3, 3))
    assert open_log(fs)[0].epochs.entries == [EpochStart(1, 0), EpochStart(3, 3)]


def test_s15_a_restart_that_cannot_begin_changes_nothing(fs: FullFor, log: PartitionLog) -> None:
    fs.names = (STATE_FILE,)
    with pytest.raises(OSError):
        log.truncate_fully_and_start_at(40)
    assert (log.failed, log.start_offset, log.end_offset) == (None, 0, 5)
    fs.names = (EPOCHS_FILE,)
    log.truncate_fully_and_start_at(40)
    assert (log.failed, log.start_offset, log.end_offset) == (None, 40, 40)
    fs.names = ()
    taken(log, (40, 7))
    again, _ = open_log(fs)
    assert (again.start_offset, again.end_offset) == (40, 41)
    assert again.epochs.entries == [EpochStart(7, 40)]


def test_s15_records_are_deleted_to_make_room_and_not_to_lose_the_log(fs: FullFor, log: PartitionLog) -> None:
    fs.names = (STATE_FILE,)
    refused = log.delete_records(3)
    assert isinstance(refused, Rejected) and refused.kind is ErrorKind.KAFKA_STORAGE_ERROR
    assert log.failed is None
    assert isinstance(log.delete_records(3), Rejected), "asked again, it is still not on disk"
    fs.names = ()
    assert log.delete_records(3) == 3
    assert open_log(fs)[0].start_offset == 3
    taken(log, (5, 2))


@pytest.mark.parametrize("name", [STATE_FILE, EPOCHS_FILE])
def test_s7_any_other_error_of_a_cut_is_final(fs: FullFor, log: PartitionLog, name: str) -> None:
    fs.names, fs.code = (name,), errno.EIO
    with pytest.raises(OSError):
        log.truncate(2)
    assert log.failed is not None
