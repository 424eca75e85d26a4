"""S15: no room for the epoch file refuses an append and takes no log out of service (F23); what it says is made sure of first."""

from __future__ import annotations

import errno
from typing import ClassVar

import pytest
from log_bench import WALL_MS, data_batch, fresh_log, open_log, put

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.log.epochs import EpochStart
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.results import AppendResult
from headrace.records.batch import read_header, stamp


class FullDisk(MemoryFileSystem):
    """The epoch file can't be written while `code` is set; `before` or after its content has changed."""

    code = 0
    too_late: ClassVar[bool] = False

    def write_file(self, path: str, data: bytes) -> None:
        failing = self.code and path.endswith("epochs")
        if not failing or self.too_late:
            super().write_file(path, data)
        if failing:
            raise OSError(self.code, "injected", path)


class TooLate(FullDisk):
    too_late = True


def replicated(offset: int, epoch: int) -> memoryview:
    batch = data_batch()
    stamp(batch, 0, offset, epoch)
    return memoryview(batch)


@pytest.mark.parametrize("kind", [FullDisk, TooLate])
def test_s15_a_follower_that_enters_an_epoch_on_a_full_disk_goes_on_when_there_is_room(
    kind: type[FullDisk],
) -> None:
    fs = kind()
    log = fresh_log(fs=fs)
    assert isinstance(log.append_replicated(replicated(0, 3), WALL_MS), AppendResult)
    fs.code = errno.ENOSPC
    refused = log.append_replicated(replicated(1, 5), WALL_MS)
    assert isinstance(refused, Rejected) and refused.kind is ErrorKind.KAFKA_STORAGE_ERROR
    assert "full" in refused.detail
    assert log.failed is None and log.end_offset == 1 and log.epochs.entries == [EpochStart(3, 0)]
    assert isinstance(log.append_replicated(replicated(1, 3), WALL_MS), Rejected), (
        "whether the file says 5 from 1 on is not known, so nothing of 3 may be written there (S2)"
    )
    fs.code = 0
    # Another leader, another history: what comes is of the older epoch.
    assert isinstance(log.append_replicated(replicated(1, 3), WALL_MS), AppendResult)
    assert isinstance(log.append_replicated(replicated(2, 6), WALL_MS), AppendResult)
    log.sync()
    again, report = open_log(fs)
    assert again.end_offset == 3 and not report.truncated_bytes
    assert again.epochs.entries == [EpochStart(3, 0), EpochStart(6, 2)]


def test_s15_r10_an_epoch_that_could_not_begin_on_a_full_disk_is_written_when_it_is_tried_again() -> None:
    fs = FullDisk()
    log = fresh_log(fs=fs)
    log.start_epoch(1)
    put(log, data_batch(), epoch=1)
    fs.code = errno.ENOSPC
    with pytest.raises(OSError):
        log.start_epoch(4)
    fs.code = 0
    log.start_epoch(4)
    batch = data_batch()
    assert isinstance(log.append(batch, read_header(batch), 4, WALL_MS), AppendResult)
    log.sync()
    assert open_log(fs)[0].epochs.entries == [EpochStart(1, 0), EpochStart(4, 1)]


def test_s7_any_other_error_of_the_epoch_file_is_final() -> None:
    fs = FullDisk()
    log = fresh_log(fs=fs)
    fs.code = errno.EIO
    assert isinstance(log.append_replicated(replicated(0, 3), WALL_MS), Rejected)
    assert log.failed is not None
