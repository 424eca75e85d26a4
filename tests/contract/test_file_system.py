"""One suite for every FileSystem: the real one, the one in memory, and the simulated disk."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.broker import os_files
from headrace.broker.os_files import OsFileSystem
from headrace.core.ports import FileSystem
from headrace.log.memory_fs import MemoryFileSystem
from headrace.testing.dice import Dice
from headrace.testing.sim_disk import SimDisk


@pytest.fixture(params=["os", "memory", "sim"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[FileSystem, str]]:
    if request.param == "os":
        yield OsFileSystem(str(tmp_path)), f"{tmp_path}/data"
    elif request.param == "memory":
        yield MemoryFileSystem(), "/data"
    else:
        yield SimDisk(Dice(1)).mount(), "/data"


@pytest.fixture
def fs(place: tuple[FileSystem, str]) -> FileSystem:
    place[0].make_dirs(place[1])
    return place[0]


@pytest.fixture
def root(place: tuple[FileSystem, str]) -> str:
    return place[1]


def _errno(error: pytest.ExceptionInfo[OSError]) -> int | None:
    return error.value.errno


def test_append_read_and_size(fs: FileSystem, root: str) -> None:
    file = fs.open(f"{root}/a", create=True)
    assert file.size == 0
    file.append([b"one", bytearray(b"two"), memoryview(b"three")])
    file.append([b""])
    assert file.size == 11
    assert file.read(0, 11) == b"onetwothree"
    assert file.read(3, 3) == b"two"
    assert file.read(8, 100) == b"ree"  # fewer only at the end
    assert file.read(11, 5) == b""
    file.sync()
    file.close()
    again = fs.open(f"{root}/a", writable=False)
    assert again.size == 11
    again.close()


def test_many_buffers_in_one_append(fs: FileSystem, root: str) -> None:
    file = fs.open(f"{root}/a", create=True)
    parts = [bytes([i % 256]) * (i % 7) for i in range(3000)]
    file.append(parts)
    assert file.read(0, file.size) == b"".join(parts)
    file.close()


def test_appends_go_to_the_end_after_a_truncation(fs: FileSystem, root: str) -> None:
    file = fs.open(f"{root}/a", create=True)
    file.append([b"0123456789"])
    file.truncate(4)
    assert file.size == 4
    file.append([b"x"])
    assert file.read(0, 100) == b"0123x"
    with pytest.raises(OSError) as error:
        file.truncate(6)  # never grows a file
    assert _errno(error) == errno.EINVAL
    file.close()


def test_opening_what_is_not_there(fs: FileSystem, root: str) -> None:
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/nowhere/a", create=True)
    with pytest.raises(FileNotFoundError):
        fs.read_file(f"{root}/a")
    with pytest.raises(OSError) as error:
        fs.open(root)
    assert _errno(error) == errno.EISDIR


def test_a_file_open_for_reading_refuses_writes(fs: FileSystem, root: str) -> None:
    fs.write_file(f"{root}/a", b"x")
    file = fs.open(f"{root}/a", writable=False)
    with pytest.raises(OSError) as error:
        file.append([b"y"])
    assert _errno(error) == errno.EBADF
    file.close()
    assert fs.read_file(f"{root}/a") == b"x"


def test_write_file_replaces_all(fs: FileSystem, root: str) -> None:
    fs.write_file(f"{root}/state", b"a long first version")
    fs.write_file(f"{root}/state", b"short")
    assert fs.read_file(f"{root}/state") == b"short"
    fs.write_file(f"{root}/state", b"")
    assert fs.read_file(f"{root}/state") == b""
    assert fs.list_dir(root) == ["state"]  # nothing temporary stays


def test_an_open_file_outlives_its_name(fs: FileSystem, root: str) -> None:
    """S20: a reader with an open file finishes, whatever happens to the name."""
    fs.write_file(f"{root}/a", b"old")
    reader = fs.open(f"{root}/a", writable=False)
    fs.rename(f"{root}/a", f"{root}/a.deleted")
    fs.remove(f"{root}/a.deleted")
    fs.write_file(f"{root}/a", b"new")
    assert reader.read(0, 10) == b"old"
    reader.close()
    assert fs.read_file(f"{root}/a") == b"new"


def test_rename_replaces_and_moves_between_directories(fs: FileSystem, root: str) -> None:
    fs.make_dirs(f"{root}/q")
    fs.write_file(f"{root}/a", b"a")
    fs.write_file(f"{root}/b", b"b")
    fs.rename(f"{root}/a", f"{root}/b")
    assert fs.list_dir(root) == ["b", "q"]
    fs.rename(f"{root}/b", f"{root}/q/c")
    assert fs.read_file(f"{root}/q/c") == b"a"
    with pytest.raises(FileNotFoundError):
        fs.rename(f"{root}/b", f"{root}/c")


def test_rename_a_directory(fs: FileSystem, root: str) -> None:
    fs.make_dirs(f"{root}/topic-0/quarantine")
    fs.write_file(f"{root}/topic-0/a", b"a")
    fs.write_file(f"{root}/topic-0/quarantine/b", b"b")
    fs.rename(f"{root}/topic-0", f"{root}/topic-0.deleted")
    assert not fs.exists(f"{root}/topic-0")
    assert fs.read_file(f"{root}/topic-0.deleted/quarantine/b") == b"b"
    fs.make_dirs(f"{root}/other")
    with pytest.raises(OSError) as error:
        fs.rename(f"{root}/other", f"{root}/topic-0.deleted")
    assert _errno(error) == errno.ENOTEMPTY


def test_directories(fs: FileSystem, root: str) -> None:
    assert fs.list_dir(f"{root}/none") == []
    fs.make_dirs(f"{root}/a/b/c")
    fs.make_dirs(f"{root}/a/b/c")  # again is fine
    fs.write_file(f"{root}/a/z", b"1")
    fs.write_file(f"{root}/a/y", b"2")
    assert fs.list_dir(f"{root}/a") == ["b", "y", "z"]
    assert fs.exists(f"{root}/a/b/c")
    fs.sync_dir(f"{root}/a")
    fs.remove_tree(f"{root}/a")
    assert not fs.exists(f"{root}/a/z")
    assert fs.list_dir(root) == []
    with pytest.raises(OSError):
        fs.sync_dir(f"{root}/a")


def test_remove(fs: FileSystem, root: str) -> None:
    fs.write_file(f"{root}/a", b"1")
    fs.remove(f"{root}/a")
    assert not fs.exists(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.remove(f"{root}/a")
    fs.make_dirs(f"{root}/d")
    with pytest.raises(OSError):
        fs.remove(f"{root}/d")


def test_free_bytes(fs: FileSystem, root: str) -> None:
    assert fs.free_bytes(root) > 0


def test_closed_files_refuse(fs: FileSystem, root: str) -> None:
    file = fs.open(f"{root}/a", create=True)
    file.close()
    file.close()
    with pytest.raises(OSError):
        file.append([b"x"])
    with pytest.raises(OSError):
        file.read(0, 1)


# ---- what only one of them can show


@pytest.fixture
def os_fs(tmp_path: Path) -> OsFileSystem:
    return OsFileSystem(str(tmp_path))


def test_s29_modes_are_private(os_fs: OsFileSystem, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        os_fs.make_dirs(f"{tmp_path}/d/e")
        os_fs.open(f"{tmp_path}/d/log", create=True).close()
        os_fs.write_file(f"{tmp_path}/d/state", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "d/e").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "d/log").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "d/state").stat().st_mode) == 0o600


def test_s29_planted_symlinks_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    data = tmp_path / "data"
    data.mkdir()
    os_fs = OsFileSystem(str(data))
    (data / "log").symlink_to(outside / "secret")
    (data / "dir").symlink_to(outside)
    (data / "state.tmp").symlink_to(outside / "secret")
    for attempt in (
        lambda: os_fs.open(f"{data}/log"),
        lambda: os_fs.read_file(f"{data}/log"),
        lambda: os_fs.read_file(f"{data}/dir/secret"),
        lambda: os_fs.open(f"{data}/dir/new", create=True),
        lambda: os_fs.list_dir(f"{data}/dir"),
        lambda: os_fs.remove_tree(f"{data}/dir/secret"),
        lambda: os_fs.write_file(f"{data}/state", b"mine"),
        lambda: os_fs.make_dirs(f"{data}/dir/new"),
        lambda: os_fs.open(f"{outside}/secret"),
        lambda: os_fs.read_file(f"{data}/../outside/secret"),
    ):
        with pytest.raises(OSError):
            attempt()
    assert (outside / "secret").read_bytes() == b"secret"
    assert [child.name for child in outside.iterdir()] == ["secret"]
    os_fs.remove_tree(f"{data}/log")  # the link goes, what it points to stays
    assert (outside / "secret").exists()


def test_a_planted_fifo_does_not_hang(os_fs: OsFileSystem, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(OSError):
        os_fs.open(f"{tmp_path}/log", writable=False)


def test_s11_short_writes_are_finished(
    os_fs: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = os_fs.open(f"{tmp_path}/log", create=True)
    real_write, real_writev = os.write, os.writev
    monkeypatch.setattr(os_files.os, "write", lambda fd, data: real_write(fd, bytes(data)[:7]))
    monkeypatch.setattr(os_files.os, "writev", lambda fd, parts: real_writev(fd, [bytes(parts[0])[:3]]))
    file.append([b"a" * 100])
    file.append([b"b" * 50, b"", b"c" * 50])
    monkeypatch.undo()
    assert file.read(0, 300) == b"a" * 100 + b"b" * 50 + b"c" * 50
    assert file.size == 200
    file.close()


def test_s11_a_short_write_that_then_fails_leaves_nothing(
    os_fs: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = os_fs.open(f"{tmp_path}/log", create=True)
    file.append([b"kept"])
    real_write = os.write
    calls: list[int] = []

    def filling_up(fd: int, data: bytes) -> int:
        calls.append(fd)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(fd, bytes(data)[:5])

    monkeypatch.setattr(os_files.os, "write", filling_up)
    with pytest.raises(OSError) as error:
        file.append([b"too much for this disk"])
    monkeypatch.undo()
    assert error.value.errno == errno.ENOSPC
    assert file.size == 4
    assert (tmp_path / "log").read_bytes() == b"kept"
    file.append([b"!"])
    assert (tmp_path / "log").read_bytes() == b"kept!"
    file.close()


def test_s6_a_failed_write_file_leaves_the_old_one(
    os_fs: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os_fs.write_file(f"{tmp_path}/state", b"old")

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os_files.os, "fsync", broken)
    with pytest.raises(OSError):
        os_fs.write_file(f"{tmp_path}/state", b"new")
    monkeypatch.undo()
    assert os_fs.read_file(f"{tmp_path}/state") == b"old"
    assert os_fs.list_dir(str(tmp_path)) == ["state"]


def test_s5_s6_order_of_write_file(
    os_fs: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data is synced before the name changes, the directory after."""
    events: list[str] = []
    real_fsync, real_rename = os.fsync, os.rename

    def fsync(fd: int) -> None:
        events.append("dir" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        real_fsync(fd)

    def rename(source: str, target: str) -> None:
        events.append("rename")
        real_rename(source, target)

    monkeypatch.setattr(os_files.os, "fsync", fsync)
    monkeypatch.setattr(os_files.os, "rename", rename)
    os_fs.write_file(f"{tmp_path}/state", b"x")
    assert events == ["file", "rename", "dir"]


def test_memory_fills_up_and_gives_back() -> None:
    fs = MemoryFileSystem(capacity_bytes=100)
    fs.make_dirs("/d")
    file = fs.open("/d/a", create=True)
    file.append([b"x" * 90])
    with pytest.raises(OSError) as error:
        file.append([b"y" * 11])
    assert error.value.errno == errno.ENOSPC
    assert (file.size, fs.free_bytes("/d")) == (90, 10)
    file.truncate(50)
    assert fs.free_bytes("/d") == 50
    fs.write_file("/d/b", b"z" * 50)
    fs.write_file("/d/b", b"")
    fs.remove("/d/a")
    file.append([b"still here"])  # nameless: not counted
    assert fs.free_bytes("/d") == 100


def test_f27_directories_of_one_topic_are_made_by_several_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody trips over another, and nobody goes on before the directory that another makes is synced (S5)."""
    fs = OsFileSystem(str(tmp_path))
    begun, synced = threading.Event(), threading.Event()
    real = OsFileSystem._sync_dir

    def slow(self: OsFileSystem, path: str) -> None:
        if path == str(tmp_path):
            begun.set()
            # Long enough for the others to have come as far as they may.
            synced.wait(0.3)
        real(self, path)
        if path == str(tmp_path):
            synced.set()

    monkeypatch.setattr(OsFileSystem, "_sync_dir", slow)

    def make(number: int) -> bool:
        if number:
            begun.wait(60)
        fs.make_dirs(f"{tmp_path}/topic/{number}")
        return synced.is_set()

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(make, range(6)))
    assert sorted(fs.list_dir(f"{tmp_path}/topic")) == [str(number) for number in range(6)]
