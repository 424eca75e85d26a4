"""Kernel: ports through which logic touches the world. Real ones live in broker/, fakes in testing/."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class Descriptor(Protocol):
    """An open file of the system."""

    @property
    def number(self) -> int: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """Monotonic milliseconds: durations and deadlines (S24)."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970: record timestamps and due times only."""
        ...


class Stopwatch(Protocol):
    """For work in a thread that gives way to others: how long it has gone on, and a way to rest."""

    def elapsed_s(self) -> float: ...

    def cpu_s(self) -> float:
        """Of the thread that asks: on a busy machine the clock on the wall says little of the work."""
        ...

    def rest(self, seconds: float) -> None:
        """Let other threads have the interpreter. Blocking: never on the loop."""
        ...


class File(Protocol):
    """An append-only file. Failures are OSError with an errno; the caller decides what dies (S7)."""

    path: str

    @property
    def size(self) -> int: ...

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers at the end or none of them: a short write is finished or cut off again (S11)."""
        ...

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """fdatasync. Blocking: drivers call it through Runtime.run_blocking. Never retried after a failure (S7)."""
        ...

    def descriptor(self) -> Descriptor | None:
        """For sendfile. Whoever has it keeps the file open, also after `close`; None when there is none."""
        ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    """Paths are absolute strings with `/`. Nothing here follows symlinks out of the data directory (S29)."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File: ...

    def read_file(self, path: str) -> bytes: ...

    def write_file(self, path: str, data: bytes) -> None:
        """Replace a small file for good: temp + fsync + rename + directory fsync (S6)."""
        ...

    def exists(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]:
        """Sorted names; empty when the directory does not exist."""
        ...

    def make_dirs(self, *paths: str) -> None:
        """With all that is missing above them. A directory that gets new ones is synced once, after all of them were made (S5)."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int: ...

    def capacity_bytes(self, path: str) -> int:
        """Of the whole disk that `path` is on, used or not."""
        ...
