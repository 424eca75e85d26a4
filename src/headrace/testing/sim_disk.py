"""Adapter: core.ports.FileSystem on a simulated disk that can lose power, lie, fill up and rot.

The disk outlives processes; `mount` gives one process a view of it that dies with the process. A power cut keeps, of
everything that was not synced, what the dice say. Faults are armed by path prefix and counted down.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from headrace.core.limits import GIB
from headrace.core.ports import Buffer
from headrace.testing.dice import Dice
from headrace.testing.sim_inode import DirectoryNode, EntryChange, FileNode, NameJournal


class DiskFault(Enum):
    SYNC_ERROR = "sync"
    """EIO once; the dirty pages are dropped and the next sync says OK (S7)."""
    APPEND_ERROR = "append"
    READ_ERROR = "read"
    SHORT_WRITE = "short"
    """The write came in two pieces: nobody notices, unless the power goes between them (S11)."""
    CRASH_BEFORE_APPEND = "crash-append"
    CRASH_BEFORE_SYNC = "crash-sync"
    CRASH_AFTER_SYNC = "crash-synced"
    CRASH_BEFORE_RENAME = "crash-rename"


class _Armed(NamedTuple):
    fault: DiskFault
    prefix: str
    skip: int
    error: int


class SimDisk:
    def __init__(self, dice: Dice, capacity_bytes: int = 64 * GIB) -> None:
        self._dice = dice
        self.capacity_bytes = capacity_bytes
        self.root = DirectoryNode()
        self.names = NameJournal()
        self.used_bytes = 0
        self.cut_count = 0
        """Open files remember it: after a power cut none of them works any more."""
        self.hang_until_s = 0.0
        """Blocking calls do not return before this moment of virtual time (S10)."""
        self.sync_count = 0
        self.crash: Callable[[], None] | None = None
        """Kills the process that runs into a CRASH fault and raises ProcessKilled; set by the node."""
        self._armed: list[_Armed] = []

    def mount(self, check_alive: Callable[[], None] | None = None) -> SimFileSystem:
        return SimFileSystem(self, check_alive)

    # --- faults ---

    def arm(self, fault: DiskFault, prefix: str = "/", *, skip: int = 0, error: int = errno.EIO) -> None:
        """The operation after the next `skip` ones on a path below `prefix` meets the fault, once."""
        self._armed.append(_Armed(fault, prefix, skip, error))

    def power_cut(self) -> None:
        # Names first: a removed file whose name comes back lost its unsynced bytes like any other.
        self.names.lose_power(self._dice)
        for node in _files(self.root):
            node.lose_power(self._dice)
        self.used_bytes = sum(len(node.data) for node in _files(self.root))
        self.cut_count += 1
        self._armed.clear()

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Bit rot, on the platter and in the cache alike."""
        node = self.find(path)
        if not isinstance(node, FileNode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        node.data[position] ^= 1 << bit

    def durable_bytes(self, path: str) -> bytes:
        """What the file is sure to hold after a power cut, given that its name is."""
        node = self.find(path)
        if not isinstance(node, FileNode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node.durable_bytes()

    def take(self, fault: DiskFault, path: str) -> int | None:
        """The errno when this operation is the one that was armed."""
        for index, armed in enumerate(self._armed):
            if armed.fault is fault and path.startswith(armed.prefix):
                if armed.skip:
                    self._armed[index] = armed._replace(skip=armed.skip - 1)
                    return None
                del self._armed[index]
                return armed.error
        return None

    def crash_if_armed(self, fault: DiskFault, path: str) -> None:
        if self._armed and self.take(fault, path) is not None and self.crash is not None:
            self.crash()

    # --- the tree ---

    def find(self, path: str) -> FileNode | DirectoryNode | None:
        node: FileNode | DirectoryNode | None = self.root
        for name in _names(path):
            if not isinstance(node, DirectoryNode):
                return None
            node = node.entries.get(name)
        return node

    def parent(self, path: str) -> tuple[DirectoryNode, str]:
        *above, name = _names(path)
        node: FileNode | DirectoryNode | None = self.root
        for part in above:
            node = node.entries.get(part) if isinstance(node, DirectoryNode) else None
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if not isinstance(node, DirectoryNode):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        return node, name

    def lose_dirty_pages(self, node: FileNode) -> None:
        node.lose_dirty_pages(self._dice)


def _names(path: str) -> list[str]:
    if not path.startswith("/") or "/../" in f"{path}/":
        raise PermissionError(errno.EACCES, "paths are absolute and stay inside", path)
    return [name for name in path.split("/") if name]


def _files(directory: DirectoryNode) -> list[FileNode]:
    found: list[FileNode] = []
    for _, node in sorted(directory.entries.items()):
        if isinstance(node, DirectoryNode):
            found.extend(_files(node))
        else:
            found.append(node)
    return found


class SimFile:
    __slots__ = ("_cut_count", "_fs", "_is_writable", "_node", "is_open", "path")

    def __init__(self, fs: SimFileSystem, path: str, node: FileNode, is_writable: bool) -> None:
        self._fs = fs
        self.path = path
        self._node = node
        self._is_writable = is_writable
        self._cut_count = fs.disk.cut_count
        self.is_open = True

    @property
    def size(self) -> int:
        return len(self._node.data)

    def _check(self, *, writing: bool = False) -> None:
        self._fs.check_alive()
        if not self.is_open or self._cut_count != self._fs.disk.cut_count:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        if writing and not self._is_writable:
            raise OSError(errno.EBADF, "the file is open for reading only", self.path)

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._check(writing=True)
        disk = self._fs.disk
        disk.crash_if_armed(DiskFault.CRASH_BEFORE_APPEND, self.path)
        data = b"".join(buffers)
        error = disk.take(DiskFault.APPEND_ERROR, self.path)
        if error is not None:
            raise OSError(error, "injected append error", self.path)
        if disk.used_bytes + len(data) > disk.capacity_bytes:
            raise OSError(errno.ENOSPC, "No space left on device", self.path)
        if not data:
            return
        disk.used_bytes += len(data)
        if disk.take(DiskFault.SHORT_WRITE, self.path) is not None and len(data) > 1:
            half = len(data) // 2
            self._node.append(data[:half])
            self._node.append(data[half:], merge=False)
        else:
            self._node.append(data)

    def read(self, position: int, length: int) -> bytes:
        self._check()
        error = self._fs.disk.take(DiskFault.READ_ERROR, self.path)
        if error is not None:
            raise OSError(error, "injected read error", self.path)
        return bytes(self._node.data[position : position + length])

    def truncate(self, size: int) -> None:
        self._check(writing=True)
        if size > self.size or size < 0:
            raise OSError(errno.EINVAL, "a log only ever shrinks by truncation", self.path)
        self._fs.disk.used_bytes -= self.size - size
        if size < self.size:
            self._node.truncate(size)

    def sync(self) -> None:
        self._check()
        disk = self._fs.disk
        disk.crash_if_armed(DiskFault.CRASH_BEFORE_SYNC, self.path)
        disk.sync_count += 1
        error = disk.take(DiskFault.SYNC_ERROR, self.path)
        if error is not None:
            disk.lose_dirty_pages(self._node)
            raise OSError(error, "injected sync error", self.path)
        self._node.synced()
        disk.crash_if_armed(DiskFault.CRASH_AFTER_SYNC, self.path)

    def descriptor(self) -> None:
        return None

    def close(self) -> None:
        self.is_open = False


class SimFileSystem:
    """One process's view of a disk."""

    def __init__(self, disk: SimDisk, check_alive: Callable[[], None] | None = None) -> None:
        self.disk = disk
        self._check_alive = check_alive

    def check_alive(self) -> None:
        if self._check_alive is not None:
            self._check_alive()

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> SimFile:
        self.check_alive()
        directory, name = self.disk.parent(path)
        node = directory.entries.get(name)
        if isinstance(node, DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            if self.disk.used_bytes >= self.disk.capacity_bytes:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            node = FileNode()
            self.disk.names.do(EntryChange(directory, name, None, node))
        return SimFile(self, path, node, writable)

    def read_file(self, path: str) -> bytes:
        file = self.open(path, writable=False)
        return file.read(0, file.size)

    def write_file(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        if self.exists(temporary):
            self.remove(temporary)
        file = self.open(temporary, create=True)
        try:
            file.append([data])
            file.sync()
        except OSError:
            self.remove(temporary)
            raise
        self.rename(temporary, path)
        self.sync_dir(path.rpartition("/")[0] or "/")

    def exists(self, path: str) -> bool:
        self.check_alive()
        return self.disk.find(path) is not None

    def list_dir(self, path: str) -> list[str]:
        self.check_alive()
        node = self.disk.find(path)
        if node is None:
            return []
        if isinstance(node, FileNode):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        return sorted(node.entries)

    def make_dirs(self, *paths: str) -> None:
        """Each new directory is synced into its parent, as the real adapter does (S5)."""
        self.check_alive()
        grown: list[DirectoryNode] = []
        for path in paths:
            node: FileNode | DirectoryNode = self.disk.root
            for name in _names(path):
                if not isinstance(node, DirectoryNode):
                    raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
                child = node.entries.get(name)
                if child is None:
                    child = DirectoryNode()
                    self.disk.names.do(EntryChange(node, name, None, child))
                    grown.append(node)
                node = child
            if not isinstance(node, DirectoryNode):
                raise FileExistsError(errno.EEXIST, "File exists", path)
        for parent in grown:
            self.disk.names.sync(parent)

    def rename(self, source: str, target: str) -> None:
        self.check_alive()
        self.disk.crash_if_armed(DiskFault.CRASH_BEFORE_RENAME, target)
        from_directory, from_name = self.disk.parent(source)
        to_directory, to_name = self.disk.parent(target)
        node = from_directory.entries.get(from_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", source)
        replaced = to_directory.entries.get(to_name)
        if replaced is node:
            return
        if isinstance(replaced, DirectoryNode) != isinstance(node, DirectoryNode) and replaced is not None:
            kind = errno.EISDIR if isinstance(replaced, DirectoryNode) else errno.ENOTDIR
            raise OSError(kind, "a file and a directory do not replace each other", target)
        if isinstance(replaced, DirectoryNode) and replaced.entries:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", target)
        if isinstance(replaced, FileNode):
            self.disk.used_bytes -= len(replaced.data)
        self.disk.names.do(
            EntryChange(from_directory, from_name, node, None),
            EntryChange(to_directory, to_name, replaced, node),
        )

    def remove(self, path: str) -> None:
        self.check_alive()
        directory, name = self.disk.parent(path)
        node = directory.entries.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if isinstance(node, DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        self.disk.used_bytes -= len(node.data)
        self.disk.names.do(EntryChange(directory, name, node, None))

    def remove_tree(self, path: str) -> None:
        """Name by name from the leaves up, so a power cut can leave half a tree."""
        self.check_alive()
        directory, name = self.disk.parent(path)
        node = directory.entries.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if isinstance(node, FileNode):
            self.remove(path)
            return
        for child in sorted(node.entries):
            self.remove_tree(f"{path}/{child}")
        self.disk.names.do(EntryChange(directory, name, node, None))

    def sync_dir(self, path: str) -> None:
        self.check_alive()
        node = self.disk.find(path)
        if not isinstance(node, DirectoryNode):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self.disk.crash_if_armed(DiskFault.CRASH_BEFORE_SYNC, path)
        error = self.disk.take(DiskFault.SYNC_ERROR, f"{path.rstrip('/')}/")
        if error is not None:
            raise OSError(error, "injected sync error", path)
        self.disk.names.sync(node)

    def free_bytes(self, path: str) -> int:
        self.check_alive()
        if self.disk.find(path) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return max(0, self.disk.capacity_bytes - self.disk.used_bytes)

    def capacity_bytes(self, path: str) -> int:
        return self.disk.capacity_bytes
