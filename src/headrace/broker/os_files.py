"""Adapter: the real file system, on `os`.

Keeps the promises of core.ports.FileSystem on POSIX: appends are whole or not at all (S11), small files are replaced
atomically and for good (S6), new names are synced with their directory (S5), files are 0600 and directories 0700, and
no path component below the root may be a symlink (S29). No mmap: an I/O error there is a signal, not an errno (S28).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
import threading
from collections.abc import Sequence

from headrace.core.ports import Buffer

_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
_MAX_BUFFERS = 512
"""Below IOV_MAX everywhere."""

if sys.platform == "darwin":
    import fcntl

    def _sync_data(descriptor: int) -> None:
        # fsync on macOS stops at the drive's cache.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
else:
    _sync_data = os.fdatasync


class OsDescriptor:
    """A number of the system's, given back when the last who has this lets go of it."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class OsFile:
    """One open file. Single writer: the size is kept here, not asked for."""

    __slots__ = ("_descriptor", "_held", "path", "size")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._held: OsDescriptor | None = OsDescriptor(descriptor)
        """What keeps it open: bytes that are on their way to a client outlive the file they come from (decision 0050)."""
        self.size: int = os.fstat(descriptor).st_size

    def append(self, buffers: Sequence[Buffer]) -> None:
        total = 0
        for buffer in buffers:
            total += len(buffer)
        try:
            if len(buffers) == 1:
                written = os.write(self._descriptor, buffers[0])
            else:
                written = os.writev(self._descriptor, buffers[:_MAX_BUFFERS])
            if written != total:
                self._finish(buffers, written)
        except OSError:
            self._cut_off()
            raise
        self.size += total

    def _finish(self, buffers: Sequence[Buffer], written: int) -> None:
        """S11: a short write (full disk, ulimit, signal) goes on until it is whole or fails for a stated reason."""
        for buffer in buffers:
            if written >= len(buffer):
                written -= len(buffer)
                continue
            rest = memoryview(buffer)[written:]
            written = 0
            while rest:
                count = os.write(self._descriptor, rest)
                if count == 0:
                    raise OSError(errno.EIO, "a write made no progress", self.path)
                rest = rest[count:]

    def _cut_off(self) -> None:
        """Take back what a failed append left. When even that fails the size no longer matches and the log is lost."""
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError:
            self.size = os.fstat(self._descriptor).st_size

    def read(self, position: int, length: int) -> bytes:
        data = os.pread(self._descriptor, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        done = len(data)
        while done < length:
            more = os.pread(self._descriptor, length - done, position + done)
            if not more:
                break
            parts.append(more)
            done += len(more)
        return b"".join(parts)

    def truncate(self, size: int) -> None:
        if size > self.size:
            raise OSError(errno.EINVAL, "a log only ever shrinks by truncation", self.path)
        os.ftruncate(self._descriptor, size)
        self.size = size

    def sync(self) -> None:
        _sync_data(self._descriptor)

    def descriptor(self) -> OsDescriptor | None:
        return self._held

    def close(self) -> None:
        self._descriptor = -1
        self._held = None


class OsFileSystem:
    """Everything below `root`, which may itself be reached through symlinks; nothing below it may be one."""

    __slots__ = ("_checked", "_making", "root")

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self._checked: set[str] = set()
        self._making = threading.Lock()

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
        self._check_parent(path)
        flags = os.O_NOFOLLOW | os.O_CLOEXEC
        flags |= os.O_RDWR | os.O_APPEND if writable else os.O_RDONLY
        if create:
            flags |= os.O_CREAT
        descriptor = self._open_regular(path, flags)
        file = OsFile(path, descriptor)
        if writable and file.size and hasattr(os, "posix_fadvise"):
            # S7: after a failed write-back the page cache can hold what the disk does not; recovery must see the disk.
            with contextlib.suppress(OSError):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return file

    def read_file(self, path: str) -> bytes:
        file = self.open(path, writable=False)
        try:
            return file.read(0, file.size)
        finally:
            file.close()

    def write_file(self, path: str, data: bytes) -> None:
        self._check_parent(path)
        temporary = path + ".tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = self._open_regular(temporary, flags)
        try:
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        self.sync_dir(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        self._check_parent(path)
        return os.path.lexists(path)

    def list_dir(self, path: str) -> list[str]:
        self._check_parent(f"{path}/x")
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def make_dirs(self, *paths: str) -> None:
        # Several threads make partitions of one topic. Who finds a directory that another is making waits until it is synced:
        # what is written into it would else be promised before it can be found again.
        with self._making:
            grown: dict[str, None] = {}
            for path in paths:
                self._make_one(path, grown)
            for directory in grown:
                self._sync_dir(directory)

    def _make_one(self, path: str, grown: dict[str, None]) -> None:
        self._need_inside(path)
        missing = []
        while not os.path.lexists(path):
            missing.append(path)
            path = os.path.dirname(path)
        if len(path) >= len(self.root):
            self._check_parent(f"{path}/x")
        for directory in reversed(missing):
            os.mkdir(directory, _DIRECTORY_MODE)
            grown[os.path.dirname(directory)] = None

    def rename(self, source: str, target: str) -> None:
        self._check_parent(source)
        self._check_parent(target)
        os.rename(source, target)
        self._checked.clear()

    def remove(self, path: str) -> None:
        self._check_parent(path)
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        self._check_parent(path)
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)
        self._checked.clear()

    def sync_dir(self, path: str) -> None:
        self._check_parent(f"{path}/x")
        self._sync_dir(path)

    def free_bytes(self, path: str) -> int:
        usage = os.statvfs(path)
        return usage.f_bavail * usage.f_frsize

    def capacity_bytes(self, path: str) -> int:
        usage = os.statvfs(path)
        return usage.f_blocks * usage.f_frsize

    def _sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _open_regular(self, path: str, flags: int) -> int:
        # O_NONBLOCK: a planted FIFO must not hang the open; it means nothing for regular files.
        descriptor = os.open(path, flags | os.O_NONBLOCK, _FILE_MODE)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, "not a regular file", path)
        return descriptor

    def _check_parent(self, path: str) -> None:
        """S29: every directory between the root and the file is a real one. Each is looked at once."""
        directory = path.rpartition("/")[0]
        if directory in self._checked:
            return
        self._need_inside(directory)
        if directory != self.root:
            self._check_parent(directory)
            try:
                is_link = stat.S_ISLNK(os.lstat(directory).st_mode)
            except FileNotFoundError:
                return
            if is_link:
                raise OSError(errno.ELOOP, "a symlink inside the data directory", directory)
        self._checked.add(directory)

    def _need_inside(self, directory: str) -> None:
        inside = directory == self.root or directory.startswith(self.root + "/")
        if not inside or "/../" in f"{directory}/":
            raise PermissionError(errno.EACCES, f"outside the data directory {self.root}", directory)
