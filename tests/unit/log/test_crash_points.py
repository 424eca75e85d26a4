"""The power goes between any two steps of anything that changes files (S3, S5, S6, S18-S21).

Every scenario runs once to count its steps, then once per step, stopping in front of it, with a kill (what was written
stays) and with several power cuts (of what was not synced, the dice say what stays). Then the log must open without
complaint, hold everything that was acknowledged, and go on. Opening is itself cut at some step, and repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from log_bench import (
    SMALL,
    WALL_MS,
    CrashingFileSystem,
    PowerCut,
    data_batch,
    derived,
    fill,
    marker,
    open_log,
    produced,
    put,
    read_all,
    records_of,
    replayed,
)

from headrace.core.ports import FileSystem
from headrace.log.checkpoints import take_clean_marker, write_clean_marker
from headrace.log.config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.results import RollReason
from headrace.testing.dice import Dice
from headrace.testing.sim_disk import SimDisk

CONFIG = replace(SMALL, segment_bytes=700, retention_bytes=800)
COMPACT = replace(SMALL, segment_bytes=700, compact=True, delete=False, delete_retention_ms=0)
SEEDS = 4


class Witness:
    """What the world outside was told, and so must find again."""

    def __init__(self) -> None:
        self.acked = b""
        """Bytes of the log below durable_end."""
        self.start_offset = 0
        self.may_lose_from: int | None = None
        """Truncation was asked for: batches from here on may be there or not."""


Scenario = Callable[[PartitionLog, Witness], None]


def flush(log: PartitionLog, witness: Witness) -> None:
    log.sync()
    witness.acked = read_all(log, upto=log.durable_end)
    witness.start_offset = log.start_offset


def append_and_roll(log: PartitionLog, witness: Witness) -> None:
    for i in range(6):
        fill(log, 1)
        put(log, produced(7, i))
        if i % 2:
            flush(log, witness)
        if i == 3:
            log.checkpoint(high_watermark=3)
    log.roll(RollReason.REQUESTED)
    fill(log, 1)
    flush(log, witness)


def new_epochs(log: PartitionLog, witness: Witness) -> None:
    for epoch in (2, 3, 5):
        log.start_epoch(epoch)
        fill(log, 1)
        flush(log, witness)


def stop_cleanly(log: PartitionLog, witness: Witness) -> None:
    put(log, produced(7, 0, transactional=True))
    put(log, marker(7, commit=False))
    flush(log, witness)
    fill(log, 1)
    log.close()


def delete_by_retention(log: PartitionLog, witness: Witness) -> None:
    fill(log, 12)
    flush(log, witness)
    witness.start_offset = log.end_offset  # from here on the beginning may go
    log.apply_retention(WALL_MS, 0, log.end_offset)
    log.purge_deleted(0)
    log.purge_deleted(10**9)
    flush(log, witness)


def delete_records(log: PartitionLog, witness: Witness) -> None:
    fill(log, 8)
    flush(log, witness)
    witness.start_offset = 9
    log.delete_records(9)
    fill(log, 2)
    log.apply_retention(WALL_MS, 0, log.end_offset)
    flush(log, witness)


def truncate_what_was_lent(log: PartitionLog, witness: Witness) -> None:
    """Decision 0050: bytes that a client may still be sent stay as they are, so the log goes on in a copy."""
    truncate(log, witness, is_lent=True)


def truncate(log: PartitionLog, witness: Witness, *, is_lent: bool = False) -> None:
    put(log, produced(7, 0))
    put(log, produced(8, 0, transactional=True))
    for i in range(6):
        fill(log, 1)
        put(log, produced(7, i + 1))
    put(log, marker(8, commit=False))
    flush(log, witness)
    log.checkpoint(high_watermark=10)
    witness.may_lose_from = 7
    if is_lent:
        for segment in log._parts.segments:
            segment.lent_to = segment.size
    log.truncate(7)
    witness.may_lose_from = None
    witness.acked = read_all(log)
    log.start_epoch(4)
    for i in range(6):  # grows past where it was, with other batches
        fill(log, 1, size=90)
        put(log, produced(9, i))
    flush(log, witness)


def start_over(log: PartitionLog, witness: Witness) -> None:
    fill(log, 8)
    flush(log, witness)
    log.checkpoint()
    witness.may_lose_from, witness.start_offset = 0, 40
    log.truncate_fully_and_start_at(40)
    witness.acked = b""
    log.start_epoch(9)
    fill(log, 3)
    flush(log, witness)


def start_over_further_down(log: PartitionLog, witness: Witness) -> None:
    fill(log, 12)
    flush(log, witness)
    witness.start_offset = log.end_offset
    log.config = replace(CONFIG, retention_bytes=0)
    log.apply_retention(WALL_MS, 0, log.end_offset)
    fill(log, 8)
    flush(log, witness)
    log.checkpoint()
    witness.may_lose_from, witness.start_offset = 0, 5
    assert log.truncate(5) == 5 == log.start_offset
    witness.acked = b""
    fill(log, 3)
    flush(log, witness)


def run_until(fs: FileSystem, scenario: Scenario, config: LogConfig, witness: Witness) -> bool:
    """False when the power went."""
    try:
        log, _ = open_log(fs, config)
        log.start_epoch(1)
        scenario(log, witness)
    except PowerCut:
        return False
    return True


def check(disk: SimDisk, config: LogConfig, witness: Witness) -> None:
    log, report = open_log(disk.mount(), config)
    data = read_all(log)
    if log.start_offset == 0:
        assert derived(log) == derived(replayed(disk.mount(), config)), "R40: a pure function of the log"
    if witness.may_lose_from is None:
        assert log.start_offset <= witness.start_offset
        known = {record.offset: record.value for record in records_of(witness.acked)}
        found = {record.offset: record.value for record in records_of(data)}
        for offset, value in known.items():
            if offset >= log.start_offset:
                assert found.get(offset) == value, f"offset {offset} was acknowledged and is gone; {report}"
    else:
        kept = {record.offset for record in records_of(data)}
        for record in records_of(witness.acked):
            if log.start_offset <= record.offset < witness.may_lose_from - 1:
                assert record.offset in kept
    log.start_epoch(100)
    base = put(log, data_batch([b"after"])).base_offset
    log.close(clean=base % 2 == 0)
    again, _ = open_log(disk.mount(), config)
    assert again.end_offset == base + 1
    assert records_of(read_all(again))[-1].value == b"after"


@pytest.mark.parametrize(
    "scenario",
    [
        append_and_roll,
        new_epochs,
        stop_cleanly,
        delete_by_retention,
        delete_records,
        truncate,
        truncate_what_was_lent,
        start_over,
        start_over_further_down,
    ],
)
def test_the_power_goes_before_every_step(scenario: Scenario) -> None:
    counting = CrashingFileSystem(SimDisk(Dice("count")).mount())
    assert run_until(counting, scenario, CONFIG, Witness())
    for step in range(len(counting.steps)):
        for seed in range(SEEDS):
            disk, witness = SimDisk(Dice(f"{step}/{seed}")), Witness()
            assert not run_until(CrashingFileSystem(disk.mount(), step), scenario, CONFIG, witness)
            if seed:  # seed 0: only the process died
                disk.power_cut()
            if seed % 2:
                cut_while_opening(disk, CONFIG, seed)
            try:
                check(disk, CONFIG, witness)
            except Exception as error:
                raise AssertionError(f"step {step} ({counting.steps[step]}), seed {seed}") from error


def cut_while_opening(disk: SimDisk, config: LogConfig, seed: int) -> None:
    for step in range(seed, 40, 7):
        try:
            open_log(CrashingFileSystem(disk.mount(), step), config)
        except PowerCut:
            disk.power_cut()
        else:
            return


# ---- compaction (S21)


def keyed(log: PartitionLog, key: int, value: int) -> None:
    put(log, data_batch([b"%d" % value], keys=[b"k%d" % key]))


def latest(log: PartitionLog) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records_of(read_all(log))}


def compact_twice(log: PartitionLog, witness: Witness) -> None:
    for i in range(16):
        keyed(log, i % 5, i)
        if i % 4 == 3:
            log.roll(RollReason.REQUESTED)
    keyed(log, 9, 99)
    flush(log, witness)
    log.compact(WALL_MS, 0, log.end_offset, forced=True)
    keyed(log, 1, 100)
    log.roll(RollReason.REQUESTED)
    flush(log, witness)
    log.compact(WALL_MS, 0, log.end_offset, forced=True)
    log.purge_deleted(0)
    log.purge_deleted(10**9)


def test_s21_the_power_goes_before_every_step_of_compaction() -> None:
    counting = CrashingFileSystem(SimDisk(Dice("count")).mount())
    assert run_until(counting, compact_twice, COMPACT, Witness())
    assert any(".swap" in step for step in counting.steps)
    for step in range(len(counting.steps)):
        for seed in range(SEEDS):
            disk, witness = SimDisk(Dice(f"{step}/{seed}")), Witness()
            run_until(CrashingFileSystem(disk.mount(), step), compact_twice, COMPACT, witness)
            if seed:
                disk.power_cut()
            if seed % 2:
                cut_while_opening(disk, COMPACT, seed)
            fs = disk.mount()
            log, report = open_log(fs, COMPACT)
            told = {record.key: record.value for record in records_of(witness.acked)}
            found = latest(log)
            for key, value in told.items():
                got = found.get(key)
                # A value may be newer than what was acknowledged, never older or gone.
                assert got is not None and int(got) >= int(value or b""), (
                    step,
                    counting.steps[step],
                    seed,
                    report,
                )
            for offset in range(log.end_offset):
                log.read(offset, 100, log.end_offset)
            log.start_epoch(50)
            keyed(log, 3, 1000)
            log.roll(RollReason.REQUESTED)
            log.sync()
            log.compact(WALL_MS, 0, log.end_offset, forced=True)
            assert latest(log)[b"k3"] == b"1000"
            names = fs.list_dir("/data/orders-0")
            assert not any(name.endswith((".cleaned", ".swap", ".tmp")) for name in names)


# ---- the marker of a clean stop (S18)


def test_s18_the_clean_marker_is_gone_before_anything_is_written() -> None:
    for step in range(20):
        for seed in range(SEEDS):
            disk = SimDisk(Dice(f"{step}/{seed}"))
            fs = disk.mount()
            fs.make_dirs("/data")
            write_clean_marker(fs, "/data", 7)
            crashing = CrashingFileSystem(disk.mount(), step)
            wrote = False
            try:
                assert take_clean_marker(crashing, "/data") is not None
                wrote = True
                crashing.write_file("/data/something", b"written in this life")
            except PowerCut:
                pass
            disk.power_cut()
            if wrote:
                assert take_clean_marker(disk.mount(), "/data") is None, "a marker of an older life"
