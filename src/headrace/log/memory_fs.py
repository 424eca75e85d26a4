"""Adapter: a file system in memory, for topics with storage=memory and for `serve --ephemeral`.

Keeps the port's promises except durability: syncing succeeds at once and means nothing after the process ends.
Invariant: like on a real disk, an open file goes on living after its name was removed or given to another file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from headrace.core.limits import GIB
from headrace.core.ports import Buffer


class _Content:
    __slots__ = ("data", "named")

    def __init__(self) -> None:
        self.data = bytearray()
        self.named = True
        """False once no name leads here any more: its bytes were given back then."""


class MemoryFile:
    __slots__ = ("_content", "_disk", "_open", "_writable", "path")

    def __init__(self, disk: MemoryFileSystem, path: str, content: _Content, writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._content = content
        self._writable = writable
        self._open = True

    @property
    def size(self) -> int:
        return len(self._content.data)

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._check(writing=True)
        if self._content.named:
            self._disk.reserve(sum(map(len, buffers)), self.path)
        for buffer in buffers:
            self._content.data += buffer

    def read(self, position: int, length: int) -> bytes:
        self._check()
        return bytes(memoryview(self._content.data)[position : position + length])

    def truncate(self, size: int) -> None:
        self._check(writing=True)
        data = self._content.data
        if size > len(data):
            raise _error(errno.EINVAL, self.path)
        if self._content.named:
            self._disk.release(len(data) - size)
        del data[size:]

    def sync(self) -> None:
        self._check()

    def descriptor(self) -> None:
        return None

    def close(self) -> None:
        self._open = False

    def _check(self, writing: bool = False) -> None:
        if not self._open or (writing and not self._writable):
            raise _error(errno.EBADF, self.path)


class MemoryFileSystem:
    """`capacity_bytes` is where ENOSPC begins."""

    __slots__ = ("_capacity_bytes", "_directories", "_files", "_used_bytes")

    def __init__(self, capacity_bytes: int = 16 * GIB) -> None:
        self._capacity_bytes = capacity_bytes
        self._used_bytes = 0
        self._files: dict[str, _Content] = {}
        self._directories: set[str] = {"/"}

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> MemoryFile:
        if path in self._directories:
            raise _error(errno.EISDIR, path)
        content = self._files.get(path)
        if content is None:
            if not create:
                raise _error(errno.ENOENT, path)
            self._need_directory(_parent(path), path)
            content = self._files[path] = _Content()
        return MemoryFile(self, path, content, writable)

    def read_file(self, path: str) -> bytes:
        return bytes(self._find(path).data)

    def write_file(self, path: str, data: bytes) -> None:
        self._need_directory(_parent(path), path)
        if path in self._directories:
            raise _error(errno.EISDIR, path)
        self.reserve(len(data), path)
        self._forget(path)
        content = self._files[path] = _Content()
        content.data += data

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def list_dir(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        names = (*self._files, *self._directories)
        inside = (name[len(prefix) :] for name in names if name.startswith(prefix) and name != prefix)
        return sorted({name for name in inside if "/" not in name})

    def make_dirs(self, *paths: str) -> None:
        for path in paths:
            while path != "/":
                if path in self._files:
                    raise _error(errno.ENOTDIR, path)
                self._directories.add(path)
                path = _parent(path)

    def rename(self, source: str, target: str) -> None:
        self._need_directory(_parent(target), target)
        if source in self._directories:
            self._rename_directory(source, target)
            return
        content = self._find(source)
        if target in self._directories:
            raise _error(errno.EISDIR, target)
        if source != target:
            self._forget(target)
            del self._files[source]
            self._files[target] = content

    def remove(self, path: str) -> None:
        self._find(path)
        self._forget(path)

    def remove_tree(self, path: str) -> None:
        if not self.exists(path):
            raise _error(errno.ENOENT, path)
        prefix = path.rstrip("/") + "/"
        for name in [name for name in self._files if name == path or name.startswith(prefix)]:
            self._forget(name)
        self._directories = {
            name for name in self._directories if name != path and not name.startswith(prefix)
        }

    def sync_dir(self, path: str) -> None:
        self._need_directory(path, path)

    def free_bytes(self, path: str) -> int:
        return max(0, self._capacity_bytes - self._used_bytes)

    def capacity_bytes(self, path: str) -> int:
        return self._capacity_bytes

    def reserve(self, size: int, path: str) -> None:
        if self._used_bytes + size > self._capacity_bytes:
            raise _error(errno.ENOSPC, path)
        self._used_bytes += size

    def release(self, size: int) -> None:
        self._used_bytes -= size

    def _find(self, path: str) -> _Content:
        content = self._files.get(path)
        if content is None:
            raise _error(errno.EISDIR if path in self._directories else errno.ENOENT, path)
        return content

    def _forget(self, path: str) -> None:
        content = self._files.pop(path, None)
        if content is not None:
            content.named = False
            self.release(len(content.data))

    def _need_directory(self, directory: str, path: str) -> None:
        if directory not in self._directories:
            raise _error(errno.ENOENT, path)

    def _rename_directory(self, source: str, target: str) -> None:
        if target in self._files:
            raise _error(errno.ENOTDIR, target)
        if self.list_dir(target):
            raise _error(errno.ENOTEMPTY, target)

        def moved(name: str) -> str:
            return target + name[len(source) :] if name == source or name.startswith(source + "/") else name

        self._files = {moved(name): content for name, content in self._files.items()}
        self._directories = {moved(name) for name in self._directories}


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
