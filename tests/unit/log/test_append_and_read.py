from __future__ import annotations

from dataclasses import replace

import pytest
from log_bench import (
    SMALL,
    WALL_MS,
    data_batch,
    fill,
    fresh_log,
    headers,
    open_log,
    produced,
    put,
    read_all,
    records_of,
)

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.log.index import ENTRY_BYTES
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.results import AppendResult, Duplicate, RollReason
from headrace.records.batch import crc_matches, read_header


def _read(log: PartitionLog, offset: int, max_bytes: int = 1 << 20, upto: int | None = None) -> bytes:
    data = log.read(offset, max_bytes, log.end_offset if upto is None else upto)
    assert not isinstance(data, Rejected), data
    return bytes(data)


def test_append_assigns_offsets_and_stamps_the_epoch() -> None:
    log = fresh_log()
    log.start_epoch(5)
    assert put(log, data_batch([b"a", b"b", b"c"])) == AppendResult(0, 2, -1)
    assert put(log, data_batch([b"d"])) == AppendResult(3, 3, -1)
    assert [(h.base_offset, h.leader_epoch) for h in headers(read_all(log))] == [(0, 5), (3, 5)]
    assert [r.value for r in records_of(read_all(log))] == [b"a", b"b", b"c", b"d"]


def test_log_append_time() -> None:
    log = fresh_log(replace(SMALL, log_append_time=True))
    assert put(log, data_batch([b"a"], wall_ms=5), wall_ms=WALL_MS + 9).log_append_time == WALL_MS + 9
    data = read_all(log)
    header = headers(data)[0]
    assert (header.max_timestamp, header.is_log_append_time) == (WALL_MS + 9, True)
    assert crc_matches(data, 0, header)


def test_r11_an_older_epoch_is_refused_and_changes_nothing() -> None:
    log = fresh_log()
    put(log, data_batch(), epoch=4)
    batch = data_batch()
    result = log.append(batch, read_header(batch), 3, WALL_MS)
    assert isinstance(result, Rejected) and result.kind is ErrorKind.FENCED_LEADER_EPOCH
    assert (log.end_offset, log.epochs.latest) == (1, 4)


def test_a_batch_larger_than_a_segment() -> None:
    log = fresh_log()
    batch = data_batch([b"x" * 5000])
    result = log.append(batch, read_header(batch), 0, WALL_MS)
    assert isinstance(result, Rejected) and result.kind is ErrorKind.RECORD_LIST_TOO_LARGE


def test_producer_state_follows_appends() -> None:
    log = fresh_log()
    first = produced(7, 0, 2)
    put(log, first)
    again = produced(7, 0, 2)
    assert log.check_producer(read_header(again)) == Duplicate(0, 1, WALL_MS)


# ---- reading


@pytest.fixture(params=["one segment", "many segments", "reopened", "crashed"])
def six_batches(request: pytest.FixtureRequest) -> PartitionLog:
    """Batches of three records: 0-2, 3-5, ... 15-17, about 100 bytes each."""
    config = SMALL if request.param != "many segments" else replace(SMALL, segment_bytes=300)
    fs = MemoryFileSystem()
    log = fresh_log(config, fs)
    for i in range(6):
        put(log, data_batch([b"%d" % i] * 3))
    if request.param in ("reopened", "crashed"):
        log.close(clean=request.param == "reopened")
        log, _ = open_log(fs, config)
    return log


@pytest.mark.parametrize(
    ("offset", "max_bytes", "upto", "bases"),
    [
        (0, 1 << 20, 18, [0, 3, 6, 9, 12, 15]),
        (4, 1 << 20, 18, [3, 6, 9, 12, 15]),  # from inside a batch: the whole batch
        (17, 1 << 20, 18, [15]),
        (18, 1 << 20, 18, []),
        (0, 1, 18, [0]),  # KIP-74: the first is whole however small the limit
        (0, 0, 18, [0]),
        (5, 150, 18, [3]),
        (0, 1 << 20, 9, [0, 3, 6]),
        (0, 1 << 20, 10, [0, 3, 6]),  # never a batch that reaches `upto`
        (0, 1 << 20, 11, [0, 3, 6]),
        (0, 1 << 20, 2, []),
        (9, 1 << 20, 9, []),
        (10, 1 << 20, 9, []),
        (9, 1 << 20, 11, []),
        (0, 1 << 20, 99, [0, 3, 6, 9, 12, 15]),
    ],
)
def test_read_table(
    six_batches: PartitionLog, offset: int, max_bytes: int, upto: int, bases: list[int]
) -> None:
    data = _read(six_batches, offset, max_bytes, upto)
    found = [header.base_offset for header in headers(data)]
    if len(bases) > 1 and six_batches.segment_count > 1:
        assert found == bases[: len(found)] and found  # may stop at the end of a segment
        rest = read_all(six_batches, max_bytes, min(upto, 18))
        assert [h.base_offset for h in headers(rest)][-1] == bases[-1]
    else:
        assert found == bases
    assert sum(header.size for header in headers(data)) == len(data), "whole batches and nothing else"


@pytest.mark.parametrize("offset", [-1, 19, 1 << 40])
def test_out_of_range(six_batches: PartitionLog, offset: int) -> None:
    result = six_batches.read(offset, 100, 18)
    assert isinstance(result, Rejected) and result.kind is ErrorKind.OFFSET_OUT_OF_RANGE


def test_every_position_limit_and_bound_agrees_with_the_list_of_batches() -> None:
    """The ring of recent batches, the sparse index and the cursors of sequential readers must all say the same."""
    log = fresh_log(replace(SMALL, segment_bytes=1500, index_interval_bytes=300))
    for i in range(40):
        put(log, data_batch([b"x" * (i * 7 % 90)] * (1 + i % 3)))
    whole = read_all(log, 1 << 20)
    batches = headers(whole)
    for offset in range(log.end_offset):
        for upto in (offset + 1, offset + 5, log.end_offset):
            for max_bytes in (1, 200, 900):
                found = headers(_read(log, offset, max_bytes, upto))
                expected = [h for h in batches if h.next_offset > offset and h.next_offset <= upto]
                assert found == expected[: len(found)]
                assert bool(found) == bool(expected) and len(found) <= max(1, max_bytes // 60)
    for limit in (1, 250, 1000):
        assert read_all(log, limit) == whole


def test_a_large_batch_after_small_ones_is_read_whole() -> None:
    log = fresh_log(replace(SMALL, segment_bytes=1 << 20, index_interval_bytes=64 * 1024))
    fill(log, 5)
    put(log, data_batch([b"z" * 200_000]))
    fill(log, 1)
    log.close()
    log, _ = open_log(log._parts.fs, log.config)
    assert headers(_read(log, 10, 100))[0].size > 200_000


# ---- rolling


def test_rolls_by_size() -> None:
    log = fresh_log()
    fill(log, 40)
    assert log.segment_count > 1
    assert log.roll_reason is RollReason.SIZE
    assert log.size_bytes == len(read_all(log))


def test_rolls_by_time_since_the_first_append() -> None:
    log = fresh_log(replace(SMALL, segment_ms=1000, busy_segment_ms=10_000))
    fill(log, 1, wall_ms=5000)
    fill(log, 1, wall_ms=5999)
    assert log.segment_count == 1
    fill(log, 1, wall_ms=6000)
    assert (log.segment_count, log.roll_reason) == (2, RollReason.TIME)
    assert log.roll_if_due(6999) is None
    assert log.roll_if_due(7000) is RollReason.TIME
    assert log.roll_if_due(99_000) is None, "an empty segment stays"


def test_a_busy_segment_rolls_hourly_and_a_quiet_one_does_not() -> None:
    config = replace(
        SMALL, segment_bytes=100_000, segment_ms=10_000, busy_segment_ms=1000, busy_segment_bytes=1000
    )
    log = fresh_log(config)
    fill(log, 2, wall_ms=5000)
    assert log.roll_if_due(6500) is None
    fill(log, 3, wall_ms=6500)
    assert log.segment_count == 1
    fill(log, 3, wall_ms=6600)
    assert (log.segment_count, log.roll_reason) == (2, RollReason.BUSY)


def test_rolls_when_the_index_is_full() -> None:
    log = fresh_log(replace(SMALL, segment_bytes=1 << 20, index_max_bytes=4 * ENTRY_BYTES))
    fill(log, 10)
    assert log.roll_reason is RollReason.INDEX_FULL


def test_s17_reading_many_segments_keeps_few_files_open() -> None:
    from log_bench import DIRECTORY, TOPIC_ID

    from headrace.log.segment_cache import SegmentCache

    fs = MemoryFileSystem()
    cache = SegmentCache(fs, capacity=3)
    log, _ = PartitionLog.open(
        fs, DIRECTORY, replace(SMALL, segment_bytes=300), topic_id=TOPIC_ID, wall_ms=WALL_MS, cache=cache
    )
    fill(log, 30)
    log.sync()
    assert log.segment_count > 10
    assert len(headers(read_all(log))) == 30
    assert len(cache) <= 3


# ---- followers


def test_r11_an_epoch_that_wrote_nothing_does_not_keep_older_batches_out() -> None:
    """A replica led epoch 7 for a moment and wrote nothing; then it follows a leader whose next batch is of epoch 3."""
    leader, fs = fresh_log(), MemoryFileSystem()
    follower, _ = open_log(fs)
    leader.start_epoch(3)
    fill(leader, 2)
    assert isinstance(follower.append_replicated(_read(leader, 0, 1), WALL_MS), AppendResult)
    follower.start_epoch(7)
    assert isinstance(follower.append_replicated(_read(leader, follower.end_offset), WALL_MS), AppendResult)
    assert follower.epochs.entries == leader.epochs.entries
    follower.close()
    reopened, _ = open_log(fs)
    assert reopened.end_offset == leader.end_offset and reopened.epochs.entries == leader.epochs.entries


def test_r11_replicated_bytes_are_the_same_bytes() -> None:
    leader = fresh_log()
    leader.start_epoch(2)
    fill(leader, 10)
    put(leader, produced(7, 0))
    leader.start_epoch(4)
    fill(leader, 30)
    follower = fresh_log(replace(SMALL, segment_bytes=1000))
    while follower.end_offset < leader.end_offset:
        data = _read(leader, follower.end_offset, 700)
        assert isinstance(follower.append_replicated(memoryview(data), WALL_MS), AppendResult)
    assert read_all(follower) == read_all(leader)
    assert follower.epochs.entries == leader.epochs.entries
    assert follower.check_producer(read_header(produced(7, 0))) == leader.check_producer(
        read_header(produced(7, 0))
    )


def test_r11_what_a_follower_refuses() -> None:
    leader = fresh_log()
    leader.start_epoch(3)
    fill(leader, 3)
    data = bytearray(read_all(leader))
    first = headers(data)[0].size
    follower = fresh_log()

    def kind_of(damaged: bytes | bytearray) -> ErrorKind:
        result = follower.append_replicated(damaged, WALL_MS)
        assert isinstance(result, Rejected)
        assert follower.end_offset == 0, "all batches are looked at before any is written"
        return result.kind

    flipped = bytearray(data)
    flipped[-1] ^= 1
    assert kind_of(flipped) is ErrorKind.CORRUPT_MESSAGE
    assert kind_of(data[first:]) is ErrorKind.CORRUPT_MESSAGE  # a gap
    assert kind_of(data + data) is ErrorKind.CORRUPT_MESSAGE  # going back
    ahead = fresh_log()
    ahead.start_epoch(9)
    fill(ahead, 1)
    older = ahead.append_replicated(_read(leader, ahead.end_offset), WALL_MS)
    assert isinstance(older, Rejected) and older.kind is ErrorKind.FENCED_LEADER_EPOCH


def test_a_fetch_answer_may_end_in_the_middle_of_a_batch() -> None:
    leader = fresh_log()
    fill(leader, 3)
    data = read_all(leader)
    follower = fresh_log()
    assert follower.append_replicated(data[:-5], WALL_MS) == AppendResult(0, 3, -1)


def test_a_leader_that_starts_in_the_middle_of_a_batch() -> None:
    leader = fresh_log()
    fill(leader, 5)
    leader.delete_records(5)
    fs = MemoryFileSystem()
    follower = fresh_log(fs=fs)
    follower.truncate_fully_and_start_at(5)
    assert isinstance(follower.append_replicated(_read(leader, 5), WALL_MS), AppendResult)
    for log in (follower, _reopen(follower, fs)):
        assert (log.start_offset, log.end_offset) == (5, 10)
        assert _read(log, 5) == _read(leader, 5)


def test_gaps_of_a_compacted_leader_are_kept() -> None:
    leader = fresh_log()
    fill(leader, 5)
    data = read_all(leader)
    size = headers(data)[0].size
    holey = data[:size] + data[2 * size :]  # the second batch was compacted away
    fs = MemoryFileSystem()
    follower = fresh_log(replace(SMALL, compact=True), fs)
    assert follower.append_replicated(holey, WALL_MS) == AppendResult(0, 9, -1)
    for log in (follower, _reopen(follower, fs)):
        assert read_all(log) == holey
        assert headers(_read(log, 3))[0].base_offset == 4, "an offset in a gap finds what comes next"


def _reopen(log: PartitionLog, fs: MemoryFileSystem) -> PartitionLog:
    log.sync()
    log.checkpoint()
    log.close(clean=False)
    # The topic may have stopped being compacted since; the log remembers that it has gaps.
    return open_log(fs, SMALL)[0]
