"""S15: clients' data is refused while there is still room for what must go on."""

from __future__ import annotations

from headrace.broker.disk_room import DiskRoom
from headrace.core.limits import GIB
from headrace.log.memory_fs import MemoryFileSystem


def disk_of(size: int) -> MemoryFileSystem:
    fs = MemoryFileSystem(capacity_bytes=size)
    fs.make_dirs("/d")
    return fs


def test_the_last_twentieth_is_kept_and_given_back() -> None:
    fs = disk_of(1000)
    room = DiskRoom(fs, "/d")
    room.look()
    assert not room.is_low
    fs.reserve(940, "/d/x")
    room.look()
    assert not room.is_low
    fs.reserve(11, "/d/x")
    room.look()
    assert room.is_low and room.free_bytes == 49
    fs.reserve(-100, "/d/x")
    room.look()
    assert not room.is_low


def test_a_large_disk_keeps_a_gibibyte_and_no_more() -> None:
    assert DiskRoom(disk_of(1000 * GIB), "/d").reserve_bytes == GIB


def test_a_reserve_of_ones_own_choice() -> None:
    fs = disk_of(1000)
    room = DiskRoom(fs, "/d", 0)
    fs.reserve(1000, "/d/x")
    room.look()
    assert not room.is_low
