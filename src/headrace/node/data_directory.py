"""Adapter: the data directory: whose it is, that only one process uses it, and what its last life left behind.

lock              held by the process that uses the directory (S27)
node              sealed: cluster id, node id, broker epoch, lease, incarnation
clean-shutdown    sealed: the last stop was clean (R33); taken away before any log is opened
coordinator.db    the embedded coordinator
topics/           the logs
quarantine/       what no topic claims (S12)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import NamedTuple

from headrace.core.ports import FileSystem
from headrace.log.checkpoints import DamagedFile, seal, take_clean_marker, unseal, write_clean_marker

_VERSION = 1
MAX_LIVES = 1_000


class DirectoryRefused(Exception):
    """The directory can't be used, and why; `hint` says what to do."""

    def __init__(self, detail: str, hint: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.hint = hint


class NodeRecord(NamedTuple):
    """What a life writes down before it registers, and again with its epoch before its logs are used."""

    cluster_id: str
    node_id: int
    broker_epoch: int
    """Of the last life that used the logs."""
    lease: int
    incarnation: str
    earlier: tuple[str, ...] = ()
    """The lives before that tried to register from here, newest first. Each may have been registered and have died before
    it learnt so (R29, F82), and a coordinator that was restored may know any of them (F10): all are this directory's."""
    revision: int = 0
    """Up to where this life had heard of the coordinator when this was written."""

    @property
    def coordinator_was_at(self) -> int:
        """At least: an epoch is the revision of a registration."""
        return max(self.revision, self.broker_epoch)

    @property
    def lives(self) -> tuple[str, ...]:
        return (self.incarnation, *self.earlier)[:MAX_LIVES]


class DirectoryLock:
    """flock: the kernel lets go when the process dies, however it dies."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "lock"
        self._descriptor = -1

    def take(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._descriptor, 64, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            self._descriptor = -1
            raise DirectoryRefused(
                f"{self._path.parent} is in use by another headrace (process {holder or 'unknown'})",
                "stop that one, or choose another directory with --data-dir",
            ) from None
        os.ftruncate(self._descriptor, 0)
        with contextlib.suppress(OSError):  # for people only; the disk may be full
            os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def holder(directory: Path) -> str | None:
    """The process that uses the directory now, asked the way a broker asks, but letting go at once; None: nobody does."""
    path = directory / "lock"
    if not path.exists():
        return None
    with path.open("rb") as file:
        named = file.read(32).decode(errors="replace").strip()
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return named or "unknown"
    return None


class DataDirectory:
    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self.path = path
        self.topics = f"{path}/topics"

    def make(self) -> None:
        self._fs.make_dirs(self.topics)

    def read_record(self) -> NodeRecord | None:
        path = f"{self.path}/node"
        if not self._fs.exists(path):
            return None
        try:
            fields = json.loads(unseal("node", _VERSION, self._fs.read_file(path)))
            fields["earlier"] = tuple(map(str, fields.get("earlier", ())))
            fields.setdefault("revision", 0)
            return NodeRecord(**{name: fields[name] for name in NodeRecord._fields})
        except (DamagedFile, ValueError, KeyError, TypeError) as problem:
            raise DirectoryRefused(
                f"{path} is damaged: {problem}",
                "restore it from a backup, or move it away to let the broker register anew (it then counts as a crash)",
            ) from None

    def write_record(self, record: NodeRecord) -> None:
        self._fs.write_file(
            f"{self.path}/node", seal("node", _VERSION, json.dumps(record._asdict()).encode() + b"\n")
        )

    def check(self, record: NodeRecord | None, cluster_id: str, node_id: int) -> None:
        """S27: a copied or mixed-up directory is refused before anything is written to it."""
        if record is None:
            return
        if record.cluster_id != cluster_id:
            raise DirectoryRefused(
                f"{self.path} belongs to cluster {record.cluster_id}, not {cluster_id}",
                "point --data-dir or --coordinator at the right one",
            )
        if record.node_id != node_id:
            raise DirectoryRefused(
                f"{self.path} belongs to node {record.node_id}, not {node_id}",
                f"start with --node-id {record.node_id}, or choose another --data-dir",
            )

    def take_clean_marker(self) -> int | None:
        """The broker epoch of the life that stopped cleanly, if the last one did."""
        marker = take_clean_marker(self._fs, self.path)
        return None if marker is None else marker.broker_epoch

    def mark_clean(self, broker_epoch: int) -> None:
        write_clean_marker(self._fs, self.path, broker_epoch)
