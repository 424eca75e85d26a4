"""Compaction (kafka.md 5.4, R40, R52, S21)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from log_bench import (
    DIRECTORY,
    SMALL,
    WALL_MS,
    data_batch,
    fresh_log,
    headers,
    marker,
    open_log,
    produced,
    put,
    read_all,
    records_of,
)

from headrace.core.plan import Rejected
from headrace.log.config import DAY_MS, HOUR_MS
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.results import Duplicate, LogCorrupt, RollReason
from headrace.log.scanning import Scanned
from headrace.records.batch import crc_matches, read_header, scan

COMPACT = replace(SMALL, compact=True, delete=False, min_cleanable_dirty_ratio=0.0)


def write(log: PartitionLog, *pairs: tuple[bytes | None, bytes | None], **fields: object) -> None:
    put(log, data_batch([value for _, value in pairs], keys=[key for key, _ in pairs], **fields))  # type: ignore[arg-type]


def close_segment(log: PartitionLog) -> None:
    log.roll(RollReason.REQUESTED)
    log.sync()


def compact(log: PartitionLog, wall_ms: int = WALL_MS, now_ms: int = 0) -> int:
    return log.compact(wall_ms, now_ms, log.end_offset, forced=True)


def contents(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records_of(read_all(log))]


def test_the_latest_value_of_each_key_stays_at_its_offset() -> None:
    log = fresh_log(COMPACT)
    write(log, (b"a", b"1"), (b"b", b"1"))
    write(log, (b"a", b"2"), (b"c", b"1"))
    close_segment(log)
    write(log, (b"b", b"2"))
    close_segment(log)
    write(log, (b"c", b"2"))
    assert compact(log) == 1
    assert contents(log) == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2"), (5, b"c", b"2")]
    assert log.end_offset == 6 and log.start_offset == 0
    assert log.segment_count == 2, "small neighbours became one"


def test_every_read_position_works_and_batches_keep_their_bounds() -> None:
    log = fresh_log(COMPACT)
    for i in range(30):
        write(log, (b"k%d" % (i % 4), b"%d" % i), (b"j%d" % (i % 3), b"%d" % i), (b"u%d" % i, b"x"))
        if i % 5 == 4:
            close_segment(log)
    before = headers(read_all(log))
    compact(log)
    data = read_all(log)
    after = {header.base_offset: header for header in headers(data)}
    for header in before:
        kept = after.get(header.base_offset)
        if kept is not None:
            assert kept.last_offset == header.last_offset
    for at, header in scan(data):
        assert crc_matches(data, at, header)
    alive = [offset for offset, _, _ in contents(log)]
    for offset in range(log.end_offset):
        out = log.read(offset, 1 << 20, log.end_offset)
        assert not isinstance(out, Rejected)
        following = [o for o in alive if o >= offset]
        if following:
            assert headers(out)[0].next_offset > offset
            assert following[0] in [record.offset for record in records_of(out)]


def test_records_without_a_key_go() -> None:
    log = fresh_log(COMPACT)
    write(log, (None, b"lost"), (b"a", b"kept"))
    close_segment(log)
    compact(log)
    assert contents(log) == [(1, b"a", b"kept")]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_compressed_batches_stay_compressed(codec: int) -> None:
    log = fresh_log(COMPACT)
    write(log, (b"a", b"1" * 100), (b"b", b"1" * 100), codec=codec)
    write(log, (b"a", b"2"), codec=codec)
    close_segment(log)
    compact(log)
    assert contents(log) == [(1, b"b", b"1" * 100), (2, b"a", b"2")]
    assert {header.codec for header in headers(read_all(log))} == {codec}


def test_headers_timestamps_and_order_survive_a_rewrite() -> None:
    from headrace.records.build import Record, build_batch

    log = fresh_log(COMPACT)
    records = [
        Record(b"a", b"old", (), WALL_MS),
        Record(b"b", b"v", (("trace", b"1"), ("none", None)), WALL_MS + 5),
        Record(b"c", None, (), WALL_MS - 7),
    ]
    put(log, bytearray(build_batch(records, wall_ms=WALL_MS)))
    write(log, (b"a", b"new"))
    close_segment(log)
    compact(log)
    found = records_of(read_all(log))
    assert [r._replace(offset=-1) for r in found[:2]] == records[1:]
    assert log.offset_for_time(WALL_MS + 1, log.end_offset) is not None


# ---- tombstones


def test_tombstones_wait_for_the_delete_horizon() -> None:
    log = fresh_log(replace(COMPACT, delete_retention_ms=DAY_MS))
    write(log, (b"a", b"1"))
    write(log, (b"a", None))
    close_segment(log)
    compact(log)
    assert contents(log) == [(1, b"a", None)], "the value goes at once, the tombstone stays"
    header = headers(read_all(log))[0]
    assert header.has_delete_horizon and header.base_timestamp == WALL_MS + DAY_MS
    assert records_of(read_all(log))[0].timestamp == WALL_MS, "the record's own time did not move"
    compact(log, WALL_MS + DAY_MS - 1, DAY_MS - 1)
    assert contents(log) == [(1, b"a", None)]
    assert headers(read_all(log))[0].base_timestamp == WALL_MS + DAY_MS, "set once"
    compact(log, WALL_MS + DAY_MS, DAY_MS)
    assert contents(log) == []


def test_a_value_after_a_tombstone_stays() -> None:
    log = fresh_log(replace(COMPACT, delete_retention_ms=0))
    write(log, (b"a", b"1"))
    write(log, (b"a", None))
    write(log, (b"a", b"2"))
    close_segment(log)
    for _ in range(3):
        compact(log)
        assert contents(log) == [(2, b"a", b"2")]


# ---- what is not touched


def test_the_active_segment_and_all_above_the_limits_stay() -> None:
    log = fresh_log(COMPACT)
    for i in range(6):
        write(log, (b"a", b"%d" % i))
        if i < 5:
            close_segment(log)
    log.compact(WALL_MS, 0, upto=3, forced=True)
    assert [offset for offset, _, _ in contents(log)] == [2, 3, 4, 5]
    write(log, (b"a", b"unsynced"))
    log.roll(RollReason.REQUESTED)
    log.compact(WALL_MS, 0, upto=99, forced=True)
    assert [offset for offset, _, _ in contents(log)][-2:] == [5, 6], "what is not synced is not compacted"


def test_r52_an_open_transaction_holds_compaction_back() -> None:
    log = fresh_log(COMPACT)
    write(log, (b"a", b"1"))
    close_segment(log)
    write(log, (b"a", b"2"))
    put(log, produced(7, 0, transactional=True))
    close_segment(log)
    write(log, (b"a", b"3"))
    close_segment(log)
    compact(log)
    assert [offset for offset, key, _ in contents(log) if key == b"a"] == [0, 1, 3]
    put(log, marker(7, commit=True))
    compact(log)
    assert [offset for offset, key, _ in contents(log) if key == b"a"] == [3]


def test_min_compaction_lag() -> None:
    log = fresh_log(replace(COMPACT, min_compaction_lag_ms=HOUR_MS))
    write(log, (b"a", b"1"))
    write(log, (b"a", b"2"))
    close_segment(log)
    assert compact(log, WALL_MS + HOUR_MS - 1, HOUR_MS - 1) == 0
    assert compact(log, WALL_MS + HOUR_MS, HOUR_MS) == 1
    assert len(contents(log)) == 1


def test_when_a_pass_is_worth_it() -> None:
    config = replace(COMPACT, min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=DAY_MS)
    log = fresh_log(config)
    for i in range(10):
        write(log, (b"k%d" % i, b"x" * 100))
    close_segment(log)
    assert log.compact(WALL_MS, 0, log.end_offset) == 1, "all dirty"
    assert log.compact(WALL_MS, 0, log.end_offset) == 0, "all clean"
    write(log, (b"k1", b"y"))
    close_segment(log)
    assert log.compact(WALL_MS, 0, log.end_offset) == 0, "too little is dirty"
    assert log.compact(WALL_MS + DAY_MS + 1, DAY_MS + 1, log.end_offset) == 1, "but it has waited long enough"


def test_max_compaction_lag_rolls_in_time() -> None:
    log = fresh_log(replace(COMPACT, max_compaction_lag_ms=HOUR_MS))
    write(log, (b"a", b"1"))
    assert log.roll_if_due(WALL_MS + HOUR_MS) is RollReason.TIME


def test_a_log_that_is_not_compacted_stays_as_it_is() -> None:
    log = fresh_log(SMALL)
    write(log, (b"a", b"1"), (b"a", b"2"))
    close_segment(log)
    assert compact(log) == 0


# ---- bounded memory


def test_a_small_map_takes_several_passes() -> None:
    log = fresh_log(replace(COMPACT, compaction_map_bytes=176 * 5))
    for round_number in range(4):
        for i in range(20):
            write(log, (b"key-%02d" % i, b"%d" % round_number))
        close_segment(log)
    expected = {b"key-%02d" % i: b"3" for i in range(20)}
    assert compact(log) > 4
    assert {key: value for _, key, value in contents(log)} == expected
    assert len(contents(log)) == 20


def test_long_keys_count_as_digests() -> None:
    log = fresh_log(COMPACT)
    write(log, (b"x" * 500, b"1"), (b"x" * 501, b"1"))
    write(log, (b"x" * 500, b"2"))
    close_segment(log)
    compact(log)
    assert [(offset, value) for offset, _, value in contents(log)] == [(1, b"1"), (2, b"2")]


# ---- transactions


def _transaction(
    log: PartitionLog, pid: int, sequence: int, *pairs: tuple[bytes, bytes], commit: bool
) -> None:
    fields = {"producer_id": pid, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
    write(log, *pairs, **fields)
    put(log, marker(pid, commit=commit))


def _control(log: PartitionLog) -> list[int]:
    return [header.base_offset for header in headers(read_all(log)) if header.is_control]


def test_r52_aborted_data_goes_and_never_supersedes() -> None:
    log = fresh_log(replace(COMPACT, delete_retention_ms=DAY_MS))
    write(log, (b"a", b"good"))  # 0
    _transaction(log, 7, 0, (b"a", b"aborted"), commit=False)  # 1, 2
    _transaction(log, 7, 1, (b"b", b"committed"), commit=True)  # 3, 4
    close_segment(log)
    assert len(log.aborted_transactions(0, 99)) == 1
    compact(log)
    assert contents(log) == [(0, b"a", b"good"), (3, b"b", b"committed")]
    assert _control(log) == [2, 4], "consumers that read the data before still need the marker"
    assert log.aborted_transactions(0, 99) == [], "no data, no entry"
    compact(
        log, WALL_MS + HOUR_MS, HOUR_MS
    )  # now there is no data in front of the abort marker: its horizon is set
    assert _control(log) == [2, 4]
    compact(log, WALL_MS + 2 * DAY_MS, 2 * DAY_MS)
    assert _control(log) == [4], "the commit marker still has data"


def test_r52_a_commit_marker_goes_after_its_data() -> None:
    log = fresh_log(replace(COMPACT, delete_retention_ms=0))
    _transaction(log, 7, 0, (b"a", b"1"), commit=True)
    write(log, (b"a", b"2"))
    put(log, produced(7, 1))  # the producer goes on, so its sequence does not hang on the first batch
    close_segment(log)
    compact(log)
    assert _control(log) == [1]
    compact(log)
    compact(log)
    assert _control(log) == []


def test_r40_an_empty_batch_stays_while_it_holds_the_last_sequence() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(COMPACT, fs)
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    write(log, (b"a", b"1"), (b"b", b"1"), **fields)
    write(log, (b"a", b"2"), (b"b", b"2"))
    close_segment(log)
    compact(log)
    empty = headers(read_all(log))[0]
    assert (empty.base_offset, empty.last_offset, empty.record_count, empty.producer_id) == (0, 1, 0, 7)
    for name in fs.list_dir(DIRECTORY):
        if name.endswith(".snapshot"):
            fs.remove(f"{DIRECTORY}/{name}")
    again, _ = open_log(fs, COMPACT)
    repeat = data_batch([b"1", b"1"], **fields)  # type: ignore[arg-type]
    verdict = again.check_producer(read_header(repeat))
    assert isinstance(verdict, Duplicate) and verdict.base_offset == 0, "found in the log itself"
    put(again, produced(7, 2))
    close_segment(again)
    compact(again)
    assert headers(read_all(again))[0].base_offset == 2, "the producer moved on"


def test_an_aborted_transaction_across_segments() -> None:
    log = fresh_log(replace(COMPACT, delete_retention_ms=0, segment_bytes=500))
    write(log, (b"a", b"0"))
    fields = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    write(log, (b"a", b"x" * 300), base_sequence=0, **fields)
    close_segment(log)
    write(log, (b"b", b"x" * 300), base_sequence=1, **fields)
    close_segment(log)
    put(log, marker(7, commit=False))
    put(log, produced(7, 2))
    close_segment(log)
    compact(log)
    assert [(offset, key) for offset, key, _ in contents(log)][:1] == [(0, b"a")]
    assert b"x" * 300 not in [value for _, _, value in contents(log)]
    assert _control(log) == [3]
    compact(log)
    compact(log)
    assert _control(log) == []
    assert log.aborted_transactions(0, 99) == []


# ---- the swap


def test_a_pass_in_steps_while_the_log_goes_on() -> None:
    log = fresh_log(replace(COMPACT, segment_bytes=1 << 22))
    for i in range(30):
        write(log, (b"k%d" % (i % 7), b"x" * 100_000))
    close_segment(log)
    run = log.begin_compaction(WALL_MS, 0, log.end_offset)
    assert run is not None
    steps = 0
    while run.step():
        steps += 1
        write(log, (b"live", b"%d" % steps))
        assert read_all(log, 1 << 20)
    assert steps >= 4
    report = log.finish_compaction(run)
    assert report.freed_bytes > 2_000_000 and not report.unfinished
    assert len([key for _, key, _ in contents(log) if key != b"live"]) == 7


@pytest.mark.parametrize("interference", ["truncate", "retention"])
def test_a_pass_whose_segments_changed_is_thrown_away(interference: str) -> None:
    fs = MemoryFileSystem()
    log = fresh_log(replace(COMPACT, delete=True), fs)
    for i in range(6):
        write(log, (b"a", b"%d" % i))
        close_segment(log)
    run = log.begin_compaction(WALL_MS, 0, log.end_offset)
    assert run is not None
    run.run()
    if interference == "truncate":
        log.truncate(3)
    else:
        log.config = replace(log.config, retention_bytes=0)
        log.apply_retention(WALL_MS, 0, 3)
    expected = contents(log)
    assert log.finish_compaction(run).rewritten_segments == 0
    assert contents(log) == expected
    assert not any(name.endswith((".cleaned", ".swap")) for name in fs.list_dir(DIRECTORY))


def test_an_abandoned_pass_leaves_nothing() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(COMPACT, fs)
    write(log, (b"a", b"1"), (b"a", b"2"))
    close_segment(log)
    run = log.begin_compaction(WALL_MS, 0, log.end_offset)
    assert run is not None
    run.run()
    run.abandon()
    assert not any(name.endswith(".cleaned") for name in fs.list_dir(DIRECTORY))
    assert len(contents(log)) == 2


def test_a_pass_that_is_abandoned_while_a_thread_works_on_it() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(replace(COMPACT, segment_bytes=1 << 22), fs)
    for i in range(30):
        write(log, (b"k%d" % (i % 7), b"x" * 100_000))
    close_segment(log)
    run = log.begin_compaction(WALL_MS, 0, log.end_offset)
    assert run is not None
    while not any(name.endswith(".cleaned") for name in fs.list_dir(DIRECTORY)):
        assert run.step()
    real_pause = run._pause

    def pause(batch: Scanned) -> bool:  # in the middle of a step
        run.abandon()
        return real_pause(batch)

    run._pause = pause  # type: ignore[method-assign]
    assert not run.step()
    assert not any(name.endswith(".cleaned") for name in fs.list_dir(DIRECTORY))
    assert len(contents(log)) == 30 and run.groups == []


def test_damage_stops_a_pass_and_loses_nothing() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(COMPACT, fs)
    write(log, (b"a", b"1"))
    write(log, (b"a", b"2"))
    close_segment(log)
    path = f"{DIRECTORY}/{0:020d}.log"
    data = bytearray(fs.read_file(path))
    data[70] ^= 1
    fs.write_file(path, bytes(data))
    run = log.begin_compaction(WALL_MS, 0, log.end_offset)
    assert run is not None
    with pytest.raises(LogCorrupt):
        run.run()
    run.abandon()
    assert fs.read_file(path) == bytes(data)
    assert not any(name.endswith(".cleaned") for name in fs.list_dir(DIRECTORY))


def test_answers_are_the_same_after_a_restart() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(COMPACT, fs)
    for i in range(40):
        write(log, (b"k%d" % (i % 5), b"%d" % i))
        if i % 10 == 9:
            close_segment(log)
    compact(log)
    expected = contents(log)
    for clean in (False, True, False):
        log.close(clean=clean)
        log, report = open_log(fs, COMPACT if clean else replace(COMPACT, compact=False))
        assert contents(log) == expected and not report.quarantined
    assert compact(log) == 0


def test_passes_do_not_pile_up_files() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(COMPACT, fs)
    now_ms = 0
    for _ in range(30):
        for i in range(5):
            write(log, (b"k%d" % i, b"v"))
        close_segment(log)
        compact(log)
        now_ms += DAY_MS
        log.purge_deleted(now_ms)
    log.purge_deleted(now_ms + DAY_MS)
    assert len(fs.list_dir(DIRECTORY)) < 15
    assert len(contents(log)) == 5
