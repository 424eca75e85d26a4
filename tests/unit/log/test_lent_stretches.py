"""Decision 0050: what a log lends instead of reading is the same batches, whole, below the limit, and checked before (S1)."""

from __future__ import annotations

import os
import random
from pathlib import Path

from headrace.broker.os_files import OsFileSystem
from headrace.core.plan import Rejected
from headrace.core.stored import Stored
from headrace.log.config import LogConfig
from headrace.log.extents import MOST, Extents
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.reader import LENT_BYTES
from headrace.records.batch import read_header, scan
from headrace.records.build import Record, build_batch

TOPIC_ID = b"t" * 16


def opened(directory: Path, **config: int | bool) -> PartitionLog:
    fs = OsFileSystem(str(directory))
    log, _ = PartitionLog.open(
        fs,
        f"{directory}/log",
        LogConfig(**config),  # type: ignore[arg-type]
        topic_id=TOPIC_ID,
        wall_ms=1,
    )
    return log


def fill(log: PartitionLog, dice: random.Random, count: int) -> None:
    for _ in range(count):
        size = dice.choice((10, 300, 5_000, 30_000, 200_000))
        records = [Record(b"k%d" % dice.randrange(9), bytes(size)) for _ in range(dice.randrange(1, 4))]
        batch = memoryview(bytearray(build_batch(records, wall_ms=1)))
        assert not isinstance(log.append(batch, read_header(batch), 0, 1), Rejected)


def taken(log: PartitionLog, offset: int, max_bytes: int, upto: int) -> tuple[bytes, bool]:
    found = log.read_or_lend(offset, max_bytes, upto)
    assert not isinstance(found, Rejected)
    if not isinstance(found, Stored):
        return bytes(found), False
    data = os.pread(found.descriptor.number, found.size, found.position)
    assert len(data) == found.size >= LENT_BYTES
    last = [header for _, header in scan(data)][-1]
    assert last.next_offset <= found.next_offset <= upto
    return data, True


def read(log: PartitionLog, offset: int, max_bytes: int, upto: int) -> bytes:
    found = log.read(offset, max_bytes, upto)
    assert not isinstance(found, Rejected)
    return bytes(found)


def compare(log: PartitionLog, dice: random.Random, turns: int) -> int:
    lent = 0
    for _ in range(turns):
        offset = dice.randrange(log.start_offset, log.end_offset)
        upto = dice.randrange(offset, log.end_offset + 1)
        max_bytes = dice.choice((1, 4_000, LENT_BYTES, 200_000, 1_000_000, 50_000_000))
        expected = read(log, offset, max_bytes, upto)
        data, is_lent = taken(log, offset, max_bytes, upto)
        lent += is_lent
        assert expected.startswith(data), "the same batches, from the same one on"
        assert bool(data) == bool(expected)
        batches = list(scan(data))
        assert sum(header.size for _, header in batches) == len(data), "none is cut"
        assert len(data) <= max_bytes or len(batches) == 1, "KIP-74"
        # The index knows every boundary to within a few KB, so a reader is not made to ask often.
        assert len(expected) - len(data) < 700_000
    return lent


def test_what_is_lent_is_what_would_be_read(tmp_path: Path) -> None:
    dice = random.Random(50)
    log = opened(tmp_path, segment_bytes=3_000_000)
    fill(log, dice, 300)
    assert compare(log, dice, 400) > 20
    log.close()
    log = opened(tmp_path, segment_bytes=3_000_000)
    assert compare(log, dice, 400) > 20
    log.close()


def test_what_is_lent_of_a_compacted_log_is_what_would_be_read(tmp_path: Path) -> None:
    dice = random.Random(51)
    log = opened(tmp_path, segment_bytes=3_000_000, compact=True)
    for _ in range(3):
        fill(log, dice, 100)
        log.sync()
        log.compact(1, 1, log.end_offset, forced=True)
        compare(log, dice, 100)
    log.close()


def test_what_is_lent_after_a_cut_is_what_would_be_read(tmp_path: Path) -> None:
    dice = random.Random(52)
    log = opened(tmp_path, segment_bytes=3_000_000)
    fill(log, dice, 100)
    for _ in range(5):
        log.truncate(dice.randrange(log.end_offset // 2, log.end_offset))
        fill(log, dice, 20)
        assert compare(log, dice, 50) > 1
    log.close()
    log = opened(tmp_path, segment_bytes=3_000_000)
    log.truncate(log.end_offset - 30)
    fill(log, dice, 20)
    assert compare(log, dice, 100) > 1
    log.close()


def test_s1_nothing_is_lent_before_it_was_read_once(tmp_path: Path) -> None:
    dice = random.Random(53)
    log = opened(tmp_path)
    fill(log, dice, 60)
    old_end = log.end_offset
    log.close()
    log = opened(tmp_path)
    fill(log, dice, 60)

    def walk(start: int, end: int) -> set[bool]:
        kinds, offset = set(), start
        while offset < end:
            data, is_lent = taken(log, offset, 500_000, end)
            kinds.add(is_lent)
            offset = [header for _, header in scan(data)][-1].next_offset
        return kinds

    assert walk(0, old_end) == {False}, "what was there at the start is read and checked"
    assert True in walk(0, old_end), "once"
    assert True in walk(old_end, log.end_offset), "what was written since needs no second look"
    log.close()


def test_memory_has_nothing_to_lend() -> None:
    log, _ = PartitionLog.open(MemoryFileSystem(), "/log", LogConfig(), topic_id=TOPIC_ID, wall_ms=1)
    fill(log, random.Random(54), 30)
    assert not taken(log, 0, 1_000_000, log.end_offset)[1]


def test_a_lent_file_can_be_read_after_everybody_else_has_let_go_of_it(tmp_path: Path) -> None:
    log = opened(tmp_path)
    fill(log, random.Random(55), 30)
    expected = read(log, 0, 1_000_000, log.end_offset)
    lent = log.read_or_lend(0, 1_000_000, log.end_offset)
    assert isinstance(lent, Stored)
    number = lent.descriptor.number
    log.close()
    for path in tmp_path.rglob("*.log"):
        path.unlink()
    assert expected.startswith(os.pread(number, lent.size, lent.position))
    assert os.readlink(f"/proc/self/fd/{number}").endswith("(deleted)")
    del lent
    assert not os.path.lexists(f"/proc/self/fd/{number}")


def test_extents_are_what_was_added_to_them() -> None:
    dice = random.Random(56)
    for _ in range(200):
        extents, known = Extents(), set()
        for _ in range(MOST):
            begin = dice.randrange(100)
            end = dice.randrange(begin + 1, begin + 12)
            extents.add(begin, end)
            known |= set(range(begin, end))
            asked = dice.randrange(100)
            until = dice.randrange(asked + 1, asked + 12)
            assert extents.covers(asked, until) == (set(range(asked, until)) <= known)


def test_extents_forget_the_shortest_when_there_are_too_many() -> None:
    extents = Extents()
    extents.add(0, 2)
    for number in range(1, MOST + 1):
        extents.add(100 * number, 100 * number + 50)
    assert not extents.covers(0, 1)
    assert all(extents.covers(100 * number, 100 * number + 50) for number in range(1, MOST + 1))
