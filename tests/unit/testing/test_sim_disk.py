"""The simulated disk: what is synced stays, what is not may go in every way a real disk loses it."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.testing.dice import Dice
from headrace.testing.sim_disk import DiskFault, SimDisk, SimFileSystem
from headrace.testing.sim_inode import SECTOR_BYTES


def fresh(seed: int = 1, capacity_bytes: int = 1 << 30) -> tuple[SimDisk, SimFileSystem]:
    disk = SimDisk(Dice(seed), capacity_bytes)
    fs = disk.mount()
    fs.make_dirs("/d")
    return disk, fs


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3000)),
        st.tuples(st.just("truncate"), st.integers(0, 100)),
        st.tuples(st.just("sync"), st.just(0)),
    ),
    max_size=20,
)


@given(st.integers(0, 1000), steps)
def test_synced_bytes_survive_a_power_cut_and_the_rest_is_plausible(
    seed: int, actions: list[tuple[str, int]]
) -> None:
    disk, fs = fresh(seed)
    file = fs.open("/d/f", create=True)
    fs.sync_dir("/d")
    durable = b""
    shrank_since_sync = False
    written_lengths = {0}
    for number, (what, amount) in enumerate(actions):
        if what == "append":
            file.append([bytes([number % 255 + 1]) * amount])
        elif what == "truncate":
            file.truncate(file.size * amount // 100)
            shrank_since_sync = True
        else:
            file.sync()
            durable = file.read(0, file.size)
            shrank_since_sync = False
        written_lengths.add(file.size)
    assert disk.durable_bytes("/d/f") == durable
    longest = max(written_lengths)
    disk.power_cut()
    after = disk.mount().read_file("/d/f")
    assert len(after) <= longest
    if not shrank_since_sync:
        assert after[: len(durable)] == durable
    with pytest.raises(OSError):
        file.read(0, 1)


def outcomes(size: int, *, seeds: int = 200) -> set[str]:
    found = set()
    for seed in range(seeds):
        disk, fs = fresh(seed)
        file = fs.open("/d/f", create=True)
        fs.sync_dir("/d")
        file.append([b"x" * size])
        disk.power_cut()
        after = disk.mount().read_file("/d/f")
        if after == b"":
            found.add("none")
        elif after == b"x" * size:
            found.add("all")
        elif set(after) == {ord("x")}:
            found.add("prefix")
        else:
            found.add("sectors")
            for start in range(0, len(after), SECTOR_BYTES):
                assert len(set(after[start : start + SECTOR_BYTES])) == 1, "a sector is written or not"
    return found


def test_an_unsynced_extent_is_lost_torn_holed_or_kept() -> None:
    assert outcomes(3000) == {"none", "prefix", "sectors", "all"}


def test_s5_a_new_file_without_a_synced_directory_may_be_gone() -> None:
    present = set()
    for seed in range(50):
        disk, fs = fresh(seed)
        file = fs.open("/d/f", create=True)
        file.append([b"data"])
        file.sync()
        disk.power_cut()
        now = disk.mount()
        present.add(now.exists("/d/f"))
        if now.exists("/d/f"):
            assert now.read_file("/d/f") == b"data"
    assert present == {True, False}


def test_s6_write_file_is_old_or_new_and_new_once_it_returned() -> None:
    for seed in range(50):
        disk, fs = fresh(seed)
        fs.write_file("/d/f", b"old")
        fs.write_file("/d/f", b"new")
        disk.power_cut()
        assert disk.mount().read_file("/d/f") == b"new"


@pytest.mark.parametrize("fault", [DiskFault.CRASH_BEFORE_SYNC, DiskFault.CRASH_BEFORE_RENAME])
def test_s6_a_crash_inside_write_file_leaves_the_old_one_whole(fault: DiskFault) -> None:
    class Crash(BaseException):
        pass

    def crash() -> None:
        raise Crash

    contents = set()
    for seed in range(60):
        disk, fs = fresh(seed)
        fs.write_file("/d/f", b"old")
        disk.crash = crash
        disk.arm(fault, skip=seed % 2)
        try:
            fs.write_file("/d/f", b"new")
        except Crash:
            pass
        disk.power_cut()
        contents.add(disk.mount().read_file("/d/f"))
    assert contents == {b"old", b"new"}


def test_rename_is_atomic_and_names_follow_their_dependencies() -> None:
    seen = set()
    for seed in range(200):
        disk, fs = fresh(seed)
        fs.make_dirs("/e")
        file = fs.open("/d/a", create=True)
        file.append([b"data"])
        file.sync()
        fs.rename("/d/a", "/e/b")
        fs.rename("/e/b", "/e/c")
        disk.power_cut()
        now = disk.mount()
        names = tuple(path for path in ("/d/a", "/e/b", "/e/c") if now.exists(path))
        assert len(names) <= 1, "one file never has two names"
        seen.add(names)
    assert seen == {(), ("/d/a",), ("/e/b",), ("/e/c",)}


def test_syncing_one_directory_brings_what_it_depends_on() -> None:
    for seed in range(50):
        disk, fs = fresh(seed)
        fs.make_dirs("/e")
        fs.open("/d/a", create=True)
        fs.rename("/d/a", "/e/b")
        fs.sync_dir("/e")
        disk.power_cut()
        now = disk.mount()
        assert now.exists("/e/b")
        assert not now.exists("/d/a")


def test_a_removed_file_may_come_back() -> None:
    back = set()
    for seed in range(40):
        disk, fs = fresh(seed)
        fs.write_file("/d/f", b"data")
        fs.remove("/d/f")
        disk.power_cut()
        back.add(disk.mount().exists("/d/f"))
    assert back == {True, False}
    disk, fs = fresh()
    fs.write_file("/d/f", b"data")
    fs.remove("/d/f")
    fs.sync_dir("/d")
    disk.power_cut()
    assert not disk.mount().exists("/d/f")


def test_s7_a_failed_sync_reports_once_then_lies() -> None:
    wrong = 0
    for seed in range(20):
        disk, fs = fresh(seed)
        file = fs.open("/d/f", create=True)
        file.append([b"old"])
        file.sync()
        file.append([b"new" * 100])
        disk.arm(DiskFault.SYNC_ERROR, "/d/f")
        with pytest.raises(OSError) as caught:
            file.sync()
        assert caught.value.errno == errno.EIO
        file.sync()  # "OK"
        assert file.size == 303
        assert file.read(0, 3) == b"old"
        wrong += file.read(3, 300) != b"new" * 100
    assert wrong > 5, "the pages are gone although the second sync said OK"


def test_faults_are_counted_and_aimed() -> None:
    disk, fs = fresh()
    one, two = fs.open("/d/one", create=True), fs.open("/d/two", create=True)
    disk.arm(DiskFault.APPEND_ERROR, "/d/two", skip=1, error=errno.EDQUOT)
    one.append([b"a"])
    two.append([b"a"])
    with pytest.raises(OSError) as caught:
        two.append([b"b"])
    assert caught.value.errno == errno.EDQUOT
    two.append([b"c"])
    assert fs.read_file("/d/two") == b"ac"
    disk.arm(DiskFault.READ_ERROR, "/d/one")
    with pytest.raises(OSError):
        one.read(0, 1)
    assert one.read(0, 1) == b"a"
    disk.flip_bit("/d/one", 0, 1)
    assert one.read(0, 1) == b"c"


def test_s11_a_short_write_shows_only_after_a_power_cut() -> None:
    lengths = set()
    for seed in range(60):
        disk, fs = fresh(seed)
        file = fs.open("/d/f", create=True)
        fs.sync_dir("/d")
        disk.arm(DiskFault.SHORT_WRITE)
        file.append([b"ab", b"cd"])
        assert file.read(0, 10) == b"abcd"
        disk.power_cut()
        lengths.add(disk.mount().read_file("/d/f"))
    assert b"\0\0cd" in lengths, "the second half without the first"


def test_s15_a_full_disk_refuses_and_recovers() -> None:
    _, fs = fresh(capacity_bytes=100)
    file = fs.open("/d/f", create=True)
    file.append([b"x" * 90])
    assert fs.free_bytes("/d") == 10
    with pytest.raises(OSError) as caught:
        file.append([b"x" * 11])
    assert caught.value.errno == errno.ENOSPC
    assert file.size == 90, "all or nothing"
    file.truncate(10)
    file.append([b"x" * 11])
    fs.remove("/d/f")
    assert fs.free_bytes("/d") == 100


def test_the_tree() -> None:
    _, fs = fresh()
    with pytest.raises(FileNotFoundError):
        fs.open("/nope/f", create=True)
    with pytest.raises(FileNotFoundError):
        fs.open("/d/f")
    with pytest.raises(IsADirectoryError):
        fs.open("/d")
    fs.make_dirs("/d/x/y")
    fs.write_file("/d/x/y/f", b"1")
    fs.write_file("/d/g", b"2")
    assert fs.list_dir("/d") == ["g", "x"]
    assert fs.list_dir("/nowhere") == []
    with pytest.raises(NotADirectoryError):
        fs.list_dir("/d/g")
    with pytest.raises(OSError):
        fs.rename("/d/g", "/d/x")
    fs.rename("/d/x", "/d/z")
    assert fs.read_file("/d/z/y/f") == b"1"
    with pytest.raises(IsADirectoryError):
        fs.remove("/d/z")
    fs.remove_tree("/d/z")
    assert fs.list_dir("/d") == ["g"]
    with pytest.raises(PermissionError):
        fs.exists("/d/../etc")
    file = fs.open("/d/g", writable=False)
    with pytest.raises(OSError):
        file.append([b"x"])
    with pytest.raises(OSError):
        fs.open("/d/g").truncate(10)
    file.close()
    with pytest.raises(OSError):
        file.read(0, 1)
