"""Files of an archive: one for each hour, synced behind the task's back, and none is told of when a sync has failed (S7)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.spark.pipelines import parquet_files
from headrace.spark.pipelines.parquet_files import SCHEMA, HourFiles
from headrace.spark.plan import OffsetRange

HOUR_US = 3_600_000_000
WANTED = OffsetRange("orders", 3, 0, 30)


def rows(first: int, hour: int) -> pa.RecordBatch:
    count = 10
    columns = {
        "key": [b"k"] * count,
        "value": [b"v" * 100] * count,
        "topic": ["orders"] * count,
        "partition": [3] * count,
        "offset": list(range(first, first + count)),
        "timestamp": [hour * HOUR_US + place for place in range(count)],
        "timestampType": [0] * count,
        "headers": [None] * count,
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def test_rows_of_two_hours_become_two_files_with_their_facts(tmp_path: Path) -> None:
    with HourFiles(tmp_path, SCHEMA, "SNAPPY") as files:
        files.write(iter([rows(0, 5), rows(10, 6), rows(20, 5)]), WANTED)
        facts = files.finish()
    assert [(one["rows"], one["min_offset"], one["max_offset"]) for one in facts] == [
        (20, 0, 29),
        (10, 10, 19),
    ]
    for one in facts:
        written = tmp_path / one["staged"]
        assert written.stat().st_size == one["bytes"]
        assert pq.read_table(written).num_rows == one["rows"]


def held_open(directory: Path) -> list[str]:
    """Of its files. How many others this process has open is the business of others."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if path.startswith(f"{directory}/")]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failed_sync_fails_the_files_and_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """S7: the next fsync may say yes although pages are lost, so the first no counts, also in mid-file."""
    asked = 0
    sync = os.fsync

    def fsync(file: int) -> None:
        nonlocal asked
        asked += 1
        if asked == failing:
            raise OSError(5, "Input/output error")
        sync(file)

    monkeypatch.setattr(parquet_files, "_ROW_GROUP_BYTES", 1)
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output"), HourFiles(tmp_path, SCHEMA, "SNAPPY") as files:
        files.write(iter([rows(0, 5), rows(10, 5)]), WANTED)
        files.finish()
    assert not held_open(tmp_path)
