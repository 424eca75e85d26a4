"""Opening a log: torn tails, damage, lost files (S1-S4, S12-S14, S25)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from log_bench import (
    DIRECTORY,
    SMALL,
    TOPIC_ID,
    WALL_MS,
    data_batch,
    fill,
    fresh_log,
    headers,
    marker,
    open_log,
    produced,
    put,
    read_all,
)

from headrace.core.plan import Rejected
from headrace.log.checkpoints import decode_state, encode_state
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.results import LogCorrupt, RollReason, WrongTopic
from headrace.log.snapshots import encode_snapshot
from headrace.records.batch import read_header, scan

FIRST = f"{DIRECTORY}/{0:020d}.log"


def overwrite(fs: MemoryFileSystem, path: str, data: bytes) -> None:
    fs.write_file(path, data)


def dump(fs: MemoryFileSystem) -> dict[str, bytes]:
    found = {}
    for name in fs.list_dir(DIRECTORY):
        path = f"{DIRECTORY}/{name}"
        if name == "quarantine":
            found.update({f"{name}/{inner}": fs.read_file(f"{path}/{inner}") for inner in fs.list_dir(path)})
        else:
            found[name] = fs.read_file(path)
    return found


def restore(files: dict[str, bytes]) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_dirs(DIRECTORY)
    for name, data in files.items():
        fs.write_file(f"{DIRECTORY}/{name}", data)
    return fs


def three_batches(*, synced: bool) -> tuple[MemoryFileSystem, bytes, list[int]]:
    """(file system after a crash, the log's bytes, where each batch ends)"""
    fs = MemoryFileSystem()
    log = fresh_log(fs=fs)
    for value in (b"one", b"two", b"three"):
        put(log, data_batch([value] * 2))
    if synced:
        log.sync()
        log.checkpoint()
    data = read_all(log)
    log.close(clean=False)
    ends = [0]
    for header in headers(data):
        ends.append(ends[-1] + header.size)
    return fs, data, ends


def test_s25_a_clean_stop_leaves_nothing_to_scan() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(fs=fs)
    fill(log, 100)
    expected = read_all(log)
    log.close()
    again, report = open_log(fs)
    assert report.clean and report.scanned_bytes == 0
    assert report.segments == again.segment_count > 3
    assert read_all(again) == expected
    assert put(again, data_batch()).base_offset == 200


def test_s25_after_a_crash_only_what_came_after_the_recovery_point_is_scanned() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(fs=fs)
    fill(log, 100)
    log.close()
    log, _ = open_log(fs)
    before = log.size_bytes
    fill(log, 30)
    log.close(clean=False)
    again, report = open_log(fs)
    # Of what was there before, only the rest of the segment that the recovery point was in.
    assert report.scanned_bytes - (again.size_bytes - before) < SMALL.segment_bytes
    assert again.end_offset == 260 and report.clean


def test_s25_a_long_active_segment_is_not_read_from_its_beginning() -> None:
    fs = MemoryFileSystem()
    config = replace(SMALL, segment_bytes=1 << 20, cache_interval_bytes=5_000)
    log = fresh_log(config, fs)
    for i in range(200):
        put(log, produced(7, i))
        fill(log, 1)
        log.sync()
        pending = log.begin_checkpoint(high_watermark=i)
        assert pending is not None
        for file in pending.files:
            fs.write_file(file.path, file.data)
        log.checkpoint_done(pending)
    assert sum(name.endswith(".snapshot") for name in fs.list_dir(DIRECTORY)) == 1, (
        "each replaces the one before"
    )
    fill(log, 2)
    log.close(clean=False)
    again, report = open_log(fs, config)
    assert 0 < report.scanned_bytes < 6_000 < again.size_bytes
    assert read_all(again) == read_all(log) and report.clean
    assert again.check_producer(read_header(produced(7, 199))) == log.check_producer(
        read_header(produced(7, 199))
    )


def test_s3_torn_write_at_every_byte_of_the_last_batch() -> None:
    fs, data, ends = three_batches(synced=False)
    files = dump(fs)
    for size in range(ends[2], ends[3]):
        torn = restore({**files, FIRST.rpartition("/")[2]: data[:size]})
        log, report = open_log(torn)
        assert log.end_offset == 4, size
        assert read_all(log) == data[: ends[2]]
        assert report.truncated_bytes == size - ends[2] and not report.quarantined
        assert put(log, data_batch()).base_offset == 4
        log.close(clean=False)
        assert open_log(torn)[0].end_offset == 5


def test_s3_a_tail_of_zeros_or_garbage_is_torn_too() -> None:
    fs, data, ends = three_batches(synced=False)
    files = dump(fs)
    for tail in (bytes(3000), b"\x02" * 700, data[ends[2] : ends[3] - 10] + bytes(500)):
        log, report = open_log(restore({**files, FIRST.rpartition("/")[2]: data[: ends[2]] + tail}))
        assert log.end_offset == 4 and report.truncated_bytes == len(tail)


@pytest.mark.parametrize("synced", [False, True])
def test_s1_s2_every_flipped_bit_is_noticed_or_harmless(synced: bool) -> None:
    """After a crash: the log is refused, or cut in front of the flip when that was the unsynced tail; or the flip shows
    when the batch is read. In no case does a changed byte come out."""
    fs, data, ends = three_batches(synced=synced)
    files = dump(fs)
    name = FIRST.rpartition("/")[2]
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        try:
            log, _ = open_log(restore({**files, name: bytes(damaged)}))
            out = read_all(log)
        except LogCorrupt as error:
            batch = max(end for end in ends if end <= position)
            assert error.position in (batch, *[end for end in ends if end > position]), error
            continue
        assert not synced, position
        assert position >= ends[2], "only the last batch can pass for a torn tail"
        assert out == data[: ends[2]]


def test_s1_a_flip_below_the_recovery_point_shows_when_it_is_read() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(fs=fs)
    for value in (b"one", b"two", b"three"):
        put(log, data_batch([value] * 2))
    data = read_all(log)
    log.close()
    files = dump(fs)
    sizes = [header.size for header in headers(data)]
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        # The last batch's header is looked at when the log is opened: then the index does not fit, and it is scanned.
        with pytest.raises(LogCorrupt):
            log, _ = open_log(restore({**files, FIRST.rpartition("/")[2]: bytes(damaged)}))
            out = b""
            for offset in (0, 2, 4):
                got = log.read(offset, 1, 6)
                assert not isinstance(got, Rejected)
                out += got
    assert sum(sizes) == len(data)


def test_s22_the_scrub_finds_rot_below_the_recovery_point() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(fs=fs)
    fill(log, 60)
    log.close()
    data = bytearray(fs.read_file(FIRST))
    data[len(data) // 2] ^= 1
    overwrite(fs, FIRST, bytes(data))
    log, _ = open_log(fs)
    offset = 0
    with pytest.raises(LogCorrupt):
        for _ in range(200):
            offset = log.scrub(offset, 500)
    assert log.scrub(log.end_offset, 500) == 0, "round and round"


@pytest.mark.parametrize("batch", [0, 1])
def test_s4_damage_in_front_of_valid_batches_is_refused_and_nothing_is_touched(batch: int) -> None:
    fs, data, ends = three_batches(synced=False)
    damaged = bytearray(data)
    damaged[ends[batch] + 30] ^= 1
    overwrite(fs, FIRST, bytes(damaged))
    before = dump(fs)
    for _ in range(2):
        with pytest.raises(LogCorrupt) as error:
            open_log(fs)
        assert (error.value.position, error.value.offset) == (ends[batch], 2 * batch)
        after = dump(fs)
        assert after[FIRST.rpartition("/")[2]] == bytes(damaged)
        assert set(after) == set(before)


def test_s4_s12_repair_is_explicit_and_keeps_what_it_cuts() -> None:
    fs, data, ends = three_batches(synced=True)
    damaged = bytearray(data)
    damaged[ends[1] + 30] ^= 1
    overwrite(fs, FIRST, bytes(damaged))
    log, report = open_log(fs, repair=True)
    assert log.end_offset == 2 and read_all(log) == data[: ends[1]]
    assert report.quarantined == [f"quarantine/{0:020d}.log.from-{ends[1]}"]
    assert fs.read_file(f"{DIRECTORY}/{report.quarantined[0]}") == bytes(damaged[ends[1] :])
    put(log, data_batch())
    log.close(clean=False)
    assert open_log(fs)[0].end_offset == 3, "repaired once, good from then on"


def test_s3_a_log_that_ends_below_the_recovery_point_is_damaged() -> None:
    fs, data, ends = three_batches(synced=True)
    overwrite(fs, FIRST, data[: ends[2]])
    with pytest.raises(LogCorrupt, match="synced up to 6"):
        open_log(fs)
    log, report = open_log(fs, repair=True)
    assert log.end_offset == 4 and report.notes


def test_lost_blocks_after_a_power_cut_end_the_log_and_are_kept() -> None:
    """A power cut may keep later blocks and lose earlier ones. A sector of zeros in front of valid batches is
    that, and was never acknowledged; `refuse_holes` is for those who trust no disk."""
    fs = MemoryFileSystem()
    log = fresh_log(replace(SMALL, segment_bytes=1 << 20), fs)
    fill(log, 2)
    log.sync()
    log.checkpoint()
    fill(log, 40)
    data = bytearray(read_all(log))
    log.close(clean=False)
    data[2048:2560] = bytes(512)
    overwrite(fs, FIRST, bytes(data))
    files = dump(fs)
    with pytest.raises(LogCorrupt):
        open_log(restore(files), refuse_holes=True)
    log, report = open_log(fs)
    assert 4 < log.end_offset < 84
    assert read_all(log) == data[: log.size_bytes]
    assert len(report.quarantined) == 1 and report.notes
    assert fs.read_file(f"{DIRECTORY}/{report.quarantined[0]}") == bytes(data[log.size_bytes :])


def _padded(pad: int) -> tuple[MemoryFileSystem, bytes, list[int]]:
    """(file system after a crash, the log's bytes, where each batch ends): one batch was synced, and its size is moved by `pad`."""
    fs = MemoryFileSystem()
    log = fresh_log(replace(SMALL, segment_bytes=1 << 20), fs)
    put(log, data_batch([b"x" * (300 + pad)]))
    log.sync()
    log.checkpoint()
    fill(log, 20)
    data = read_all(log)
    log.close(clean=False)
    ends = [0]
    for header in headers(data):
        ends.append(ends[-1] + header.size)
    return fs, data, ends


@pytest.mark.parametrize("pad", range(90))
def test_a_lost_block_is_known_wherever_batches_begin_in_it(pad: int) -> None:
    """The front of a batch (its offset is not under its CRC) may lie in the lost block, and the block before may end within that front."""
    fs, data, ends = _padded(pad)
    files = dump(fs)
    sector = 512
    # A whole sector, and the rest of one whose front had been synced.
    for begin, end in ((2 * sector, 3 * sector), (ends[1], -(-ends[1] // sector) * sector)):
        broken = bytearray(data)
        broken[begin:end] = bytes(end - begin)
        again = restore({**files, f"{0:020d}.log": bytes(broken)})
        log, _ = open_log(again)
        whole = max(at for at in ends if data[:at] == broken[:at])
        assert read_all(log) == data[:whole], "up to what is whole, and nothing behind it"


def _two_segments() -> tuple[MemoryFileSystem, list[str], int]:
    fs = MemoryFileSystem()
    log = fresh_log(fs=fs)
    fill(log, 3)
    log.roll(RollReason.REQUESTED)
    fill(log, 3)
    log.close(clean=False)
    return fs, [f"{DIRECTORY}/{0:020d}.log", f"{DIRECTORY}/{6:020d}.log"], 6


def test_s19_a_gap_between_unsynced_segments_is_where_the_log_ends() -> None:
    fs, paths, boundary = _two_segments()
    data = fs.read_file(paths[0])
    size = headers(data)[0].size
    for kept in (0, size, 2 * size, 2 * size + 30):
        broken = restore({**dump(fs), paths[0].rpartition("/")[2]: data[:kept]})
        with pytest.raises(LogCorrupt):
            open_log(restore(dump(broken)), refuse_holes=True)
        log, report = open_log(broken)
        assert log.end_offset == kept // size * 2 < boundary
        assert any(name.endswith(f"{6:020d}.log") for name in report.quarantined), (
            "later batches are kept aside"
        )


def test_s19_an_empty_later_segment_just_goes() -> None:
    fs, paths, _ = _two_segments()
    data = fs.read_file(paths[0])
    overwrite(fs, paths[0], data[:-10])
    overwrite(fs, paths[1], b"")
    log, report = open_log(fs)
    assert log.end_offset == 4 and not report.quarantined and log.segment_count == 1


def test_s3_a_missing_segment_below_the_recovery_point_is_damage() -> None:
    for victim in (0, 1):
        fs, paths, _ = _two_segments()
        log, _ = open_log(fs)
        log.roll(RollReason.REQUESTED)
        fill(log, 1)
        log.close()
        fs.remove(paths[victim])
        with pytest.raises(LogCorrupt):
            open_log(fs)
        with pytest.raises(LogCorrupt):
            open_log(fs)


def test_all_segments_missing_is_damage() -> None:
    fs, paths, _ = _two_segments()
    open_log(fs)[0].close()
    for path in paths:
        fs.remove(path)
    with pytest.raises(LogCorrupt, match="every segment is missing"):
        open_log(fs)


# ---- small files and caches


def _busy_log() -> tuple[MemoryFileSystem, PartitionLog]:
    """Several segments, epochs, producers, an aborted and an open transaction."""
    fs = MemoryFileSystem()
    log = fresh_log(replace(SMALL, segment_bytes=1200), fs)
    for i in range(12):
        if i % 4 == 0:
            log.start_epoch(i + 1)
        put(log, produced(100 + i % 3, i // 3, 1))
        put(log, produced(200, 2 * i, 2, transactional=True))
        put(log, marker(200, commit=i % 2 == 0))
        fill(log, 1, size=i * 10)
    put(log, produced(300, 0, transactional=True))
    fill(log, 2)
    return fs, log


def _answers(log: PartitionLog) -> tuple[object, ...]:
    return (
        read_all(log),
        log.epochs.entries,
        encode_snapshot(0, log.producers).partition(b"\n")[2],
        log.aborted_transactions(0, log.end_offset),
        log.first_unstable_offset,
        [log.offset_for_time(ts, log.end_offset) for ts in (0, WALL_MS, WALL_MS + 1)],
        log.max_timestamp_offset(log.end_offset),
    )


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["delete", "truncate", "flip", "empty"])
def test_s12_s13_s14_each_file_but_the_batches_lost_in_turn(clean: bool, damage: str) -> None:
    fs, log = _busy_log()
    log.sync()
    log.checkpoint()
    expected = _answers(log)
    log.close(clean=clean)
    files = dump(fs)
    assert sum(name.endswith(".index") for name in files) >= 3
    assert sum(name.endswith(".snapshot") for name in files) >= 3
    for name, data in files.items():
        if name.endswith(".log"):
            continue
        damaged = dict(files)
        if damage == "delete":
            del damaged[name]
        elif damage == "truncate":
            damaged[name] = data[: len(data) // 2]
        elif damage == "empty":
            damaged[name] = b""
        else:
            damaged[name] = (
                data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
            )
        hurt = restore(damaged)
        if name == "partition":
            with pytest.raises(LogCorrupt):  # whose batches are these? a loud stop
                open_log(hurt, log.config)
            again, report = open_log(hurt, log.config, repair=True)
        else:
            again, report = open_log(hurt, log.config)
        assert _answers(again) == expected, name
        if name in ("state", "epochs", "partition"):
            assert name in report.rebuilt
        kept = dump(hurt)
        for other, content in files.items():
            if other.endswith(".log"):
                assert kept[other] == content, "S12: no batch is ever deleted for a lost small file"


def test_s14_an_index_without_a_log_goes_and_a_stale_one_is_not_believed() -> None:
    fs, log = _busy_log()
    expected = _answers(log)
    log.close()
    names = sorted(name for name in fs.list_dir(DIRECTORY) if name.endswith(".index"))
    fs.write_file(f"{DIRECTORY}/{999:020d}.index", b"orphan")
    fs.write_file(f"{DIRECTORY}/{names[1]}", fs.read_file(f"{DIRECTORY}/{names[0]}"))  # of another segment
    again, _ = open_log(fs, log.config)
    assert _answers(again) == expected
    assert not fs.exists(f"{DIRECTORY}/{999:020d}.index")


def test_s14_an_index_deleted_under_a_running_log_is_made_again() -> None:
    fs, log = _busy_log()
    expected = _answers(log)
    log.close()
    again, _ = open_log(fs, log.config)
    for name in fs.list_dir(DIRECTORY):
        if name.endswith(".index"):
            fs.remove(f"{DIRECTORY}/{name}")
    assert _answers(again) == expected


def test_s12_only_ours_is_removed() -> None:
    fs, log = _busy_log()
    log.close()
    fs.write_file(f"{DIRECTORY}/notes.txt", b"mine")
    fs.write_file(f"{DIRECTORY}/12.log", b"not a segment's name")
    open_log(fs, log.config)[0].close()
    assert fs.read_file(f"{DIRECTORY}/notes.txt") == b"mine"
    assert fs.exists(f"{DIRECTORY}/12.log")


def test_r34_another_topic_of_the_same_name() -> None:
    fs = MemoryFileSystem()
    fresh_log(fs=fs).close()
    with pytest.raises(WrongTopic):
        PartitionLog.open(fs, DIRECTORY, SMALL, topic_id=bytes(16), wall_ms=WALL_MS)
    with pytest.raises(WrongTopic):
        PartitionLog.open(fs, DIRECTORY, SMALL, topic_id=bytes(16), wall_ms=WALL_MS, repair=True)
    assert PartitionLog.open(fs, DIRECTORY, SMALL, topic_id=TOPIC_ID, wall_ms=WALL_MS)[1].clean


def test_r10_an_epoch_that_wrote_nothing_survives_a_restart() -> None:
    fs = MemoryFileSystem()
    log = fresh_log(fs=fs)
    fill(log, 2)
    log.start_epoch(8)
    log.close(clean=False)
    again, _ = open_log(fs)
    assert again.epochs.entries == [(0, 0), (8, 4)]


def test_s2_an_epoch_that_the_cache_does_not_know_is_damage() -> None:
    fs, data, ends = three_batches(synced=False)
    damaged = bytearray(data)
    damaged[ends[1] + 15] ^= 4  # partitionLeaderEpoch is outside the CRC
    overwrite(fs, FIRST, bytes(damaged))
    with pytest.raises(LogCorrupt, match="leader epoch 4 where 0 led"):
        open_log(fs)


def test_r40_replay_starts_at_the_newest_usable_snapshot() -> None:
    fs, log = _busy_log()
    log.close()
    files = dump(fs)
    snapshots = sorted(name for name in files if name.endswith(".snapshot"))
    expected = encode_snapshot(0, log.producers).partition(b"\n")[2]
    for broken in range(len(snapshots) + 1):
        hurt = dict(files)
        for name in snapshots[len(snapshots) - broken :]:
            hurt[name] = hurt[name][:-1] + b"?"
        again, report = open_log(restore(hurt), log.config)
        assert encode_snapshot(0, again.producers).partition(b"\n")[2] == expected
        assert again.aborted_transactions(0, log.end_offset) == log.aborted_transactions(0, log.end_offset)
        assert ("producers" in report.rebuilt) == (broken == len(snapshots))


def test_r23_a_start_over_that_was_cut_short_is_finished_and_nothing_of_the_old_log_is_left() -> None:
    fs, log = _busy_log()
    log.close()
    files = dump(fs)
    state = decode_state(files["state"])
    files["state"] = encode_state(state._replace(log_start=900, recovery_point=900, restarting=1))
    again, report = open_log(restore(files), log.config)
    assert (again.start_offset, again.end_offset) == (900, 900)
    assert again.epochs.entries == [] and len(again.producers) == 0
    assert "finished starting over at offset 900" in report.notes


@pytest.mark.parametrize("what", ["magic", "base offset", "crc"])
def test_s14_an_index_is_believed_only_if_the_last_batch_it_speaks_of_is_there(what: str) -> None:
    fs = MemoryFileSystem()
    log = fresh_log(fs=fs)
    fill(log, 3)
    log.roll(RollReason.REQUESTED)
    fill(log, 3)
    log.sync()
    log.checkpoint()
    log.close(clean=False)
    files = dump(fs)
    open_log(restore(files))
    name = FIRST.rpartition("/")[2]
    data = bytearray(files[name])
    last = [at for at, _ in scan(data)][-1]
    data[last + {"base offset": 7, "magic": 16, "crc": 20}[what]] ^= 1
    files[name] = bytes(data)
    with pytest.raises(LogCorrupt):
        open_log(restore(files))


def test_a_new_log_is_there_after_a_crash_at_once() -> None:
    fs = MemoryFileSystem()
    log, report = open_log(fs)
    assert (log.start_offset, log.end_offset, report.segments) == (0, 0, 1)
    log.close(clean=False)
    again, report = open_log(fs)
    assert report.clean and again.end_offset == 0
