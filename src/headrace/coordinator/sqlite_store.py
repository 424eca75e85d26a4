"""Adapter: the coordinator's store in one SQLite file, blocking; `sqlite.py` calls it off the loop.

WAL with synchronous=FULL: a committed transaction survives power loss, and readers never wait for the writer. Several
processes on one host may open the same file; each write is one BEGIN IMMEDIATE, so the file's lock orders them all and
the revision in it is the one clock. The file must be on a local disk: SQLite's shared memory does not work over a network.

Leases run on the boot clock, because all processes of a host read the same one, it runs while the host sleeps, and nobody
can set it. It begins anew at each boot, so the file remembers the boot's id: after a reboot every holder is dead for certain
and its leases end at once. (The wall clock would expire leases when an operator corrects it.)
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from headrace.coordinator.history import MAX_BATCH_EVENTS
from headrace.coordinator.port import (
    Compare,
    Delete,
    Event,
    KeyLease,
    KeyValue,
    LeaseNotFound,
    Operation,
    OutcomeUnknown,
    Put,
    Snapshot,
    TxnResult,
    WatchBatch,
    check_txn,
    prefix_end,
)

T = TypeVar("T")

APPLICATION_ID = 0x68726163  # "hrac": what `file` and a careful opener see
SCHEMA_VERSION = 1
HISTORY_REVISIONS = 10_000
TRIM_EVERY = 1_000
BUSY_TIMEOUT_MS = 2_000

_SCHEMA = """
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL, history_floor INTEGER NOT NULL, next_lease INTEGER NOT NULL, boot_id TEXT NOT NULL);
CREATE TABLE kv (
    key TEXT PRIMARY KEY, value BLOB NOT NULL,
    create_revision INTEGER NOT NULL, mod_revision INTEGER NOT NULL, lease INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX kv_by_lease ON kv (lease) WHERE lease != 0;
CREATE TABLE events (
    revision INTEGER NOT NULL, position INTEGER NOT NULL, key TEXT NOT NULL, value BLOB,
    create_revision INTEGER NOT NULL, lease INTEGER NOT NULL, PRIMARY KEY (revision, position)) WITHOUT ROWID;
CREATE TABLE leases (id INTEGER PRIMARY KEY, ttl_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL);
"""
_HIGHEST = chr(0x10FFFF) * 2
"""Above every key: the keys' characters are printable, and this one is not."""


class Pulse(NamedTuple):
    """What a poll found."""

    revision: int
    next_expiry_ms: int | None


def boot_ms() -> int:
    """Milliseconds since boot, with sleep; the same in every process of the host."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    # Elsewhere than on Linux the monotonic clock also counts from boot, for all processes.
    return (time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)) // 1_000_000


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def boot_id() -> str:
    """Which boot the boot clock counts from; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


class SqliteStore:
    """Not safe to call from two threads at once: the face takes turns."""

    def __init__(
        self, path: str, *, now_ms: int, boot: str, history_revisions: int = HISTORY_REVISIONS
    ) -> None:
        _create_private(path)
        self._path = path
        self._wal_path = f"{path}-wal"
        self._history_revisions = history_revisions
        self._db = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
        )
        self._inode = _inode(path)
        try:
            self._use_wal()
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA trusted_schema = OFF")
            self._open_schema(path, boot)
            if self._state("boot_id") != boot:
                self._write(lambda: self._after_reboot(boot))
            elif self._one("SELECT 1 FROM leases WHERE expires_ms > ? + ttl_ms LIMIT 1", now_ms):
                # A boot clock that went back without a new boot id (a time namespace): never wait longer than a TTL.
                self._write(
                    lambda: self._run("UPDATE leases SET expires_ms = min(expires_ms, ? + ttl_ms)", now_ms)
                )
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    def stamp(self) -> tuple[int, int]:
        """Changes with almost every commit of any process; so cheap that it may be asked on the loop.

        The kernel counts file times in steps of some milliseconds, so two commits can share a stamp: `poll` is exact.
        """
        try:
            found = os.stat(self._wal_path)
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_size)

    def is_replaced(self) -> bool:
        """Whether the path leads to another file by now, or to none."""
        return _inode(self._path) != self._inode

    # Reading. One statement, or one read transaction, sees one revision.

    def get(self, key: str) -> KeyValue | None:
        row = self._one("SELECT key, value, create_revision, mod_revision, lease FROM kv WHERE key = ?", key)
        return None if row is None else KeyValue(*row)

    def read(self, prefix: str) -> Snapshot:
        def look() -> Snapshot:
            rows = self._db.execute(
                "SELECT key, value, create_revision, mod_revision, lease FROM kv"
                " WHERE key >= ? AND key < ? ORDER BY key",
                (prefix, prefix_end(prefix) or _HIGHEST),
            )
            items = [KeyValue(*row) for row in rows]
            return Snapshot(self._state("revision"), items)

        return self._reading(look)

    def since(self, prefix: str, position: int) -> WatchBatch | None:
        """As EventHistory.since: whole revisions from `position` on, bounded; None when compacted away."""

        def look() -> WatchBatch | None:
            if position < self._state("history_floor"):
                return None
            bounds = (prefix, prefix_end(prefix) or _HIGHEST)
            last = self._one(
                "SELECT revision FROM events WHERE revision >= ? AND key >= ? AND key < ?"
                " ORDER BY revision, position LIMIT 1 OFFSET ?",
                position, *bounds, MAX_BATCH_EVENTS - 1,
            )  # fmt: skip
            upto: int = self._state("revision") if last is None else last[0]
            rows = self._db.execute(
                "SELECT key, value, create_revision, revision, lease FROM events"
                " WHERE revision BETWEEN ? AND ? AND key >= ? AND key < ? ORDER BY revision, position",
                (position, upto, *bounds),
            )
            return WatchBatch(upto, [Event(*row) for row in rows])

        return self._reading(look)

    def poll(self, now_ms: int) -> Pulse:
        """Expire what is due, and say where the store is: another process may have moved it."""
        pulse = self._pulse()
        if pulse.next_expiry_ms is None or pulse.next_expiry_ms > now_ms:
            return pulse
        self._write(lambda: self._expire(now_ms))
        return self._pulse()

    # Writing.

    def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        check_txn(compares, operations)
        return self._write(lambda: self._txn(compares, operations))

    def grant(self, ttl_ms: int, now_ms: int) -> KeyLease:
        if ttl_ms <= 0:
            raise ValueError(f"a lease of {ttl_ms} ms")

        def add() -> KeyLease:
            lease = KeyLease(self._state("next_lease"), ttl_ms)
            self._run("UPDATE state SET next_lease = next_lease + 1")
            self._run("INSERT INTO leases VALUES (?, ?, ?)", lease.id, ttl_ms, now_ms + ttl_ms)
            return lease

        return self._write(add)

    def keep_alive(self, lease_id: int, now_ms: int) -> int:
        def renew() -> int:
            held = self._one("SELECT ttl_ms, expires_ms FROM leases WHERE id = ?", lease_id)
            if held is None:
                return 0
            if held[1] <= now_ms:
                self._revoke(lease_id)
                return 0
            self._run("UPDATE leases SET expires_ms = ? WHERE id = ?", now_ms + held[0], lease_id)
            return int(held[0])

        return self._write(renew)

    def revoke(self, lease_id: int) -> int:
        """The revision afterwards."""

        def end() -> int:
            self._revoke(lease_id)
            return int(self._state("revision"))

        return self._write(end)

    # Inside a write transaction.

    def _txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        revision: int = self._state("revision")
        if not all(compare.holds(self.get(compare.key)) for compare in compares):
            return TxnResult(False, revision)
        for lease_id in {put.lease for put in operations if isinstance(put, Put)} - {0}:
            if self._one("SELECT 1 FROM leases WHERE id = ?", lease_id) is None:
                raise LeaseNotFound(f"lease {lease_id} is gone; nothing was written")
        events: list[Event] = []
        for operation in operations:
            if isinstance(operation, Put):
                events.append(self._put(operation, revision + 1))
            elif isinstance(operation, Delete):
                events.extend(self._delete([operation.key], revision + 1))
            else:
                rows = self._db.execute(
                    "SELECT key FROM kv WHERE key >= ? AND key < ? ORDER BY key",
                    (operation.prefix, prefix_end(operation.prefix) or _HIGHEST),
                ).fetchall()
                events.extend(self._delete([row[0] for row in rows], revision + 1))
        return TxnResult(True, self._record(events, revision))

    def _put(self, put: Put, revision: int) -> Event:
        created: int = self._one(
            "INSERT INTO kv VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value,"
            " mod_revision = excluded.mod_revision, lease = excluded.lease RETURNING create_revision",
            put.key, put.value, revision, revision, put.lease,
        )[0]  # fmt: skip
        return Event(put.key, put.value, created, revision, put.lease)

    def _delete(self, keys: Sequence[str], revision: int) -> list[Event]:
        return [
            Event(key, None, 0, revision)
            for key in keys
            if self._run("DELETE FROM kv WHERE key = ?", key).rowcount
        ]

    def _record(self, events: Sequence[Event], revision: int) -> int:
        """Write the history of the next revision, if anything changed; the revision the store is then at."""
        if not events:
            return revision
        revision += 1
        self._db.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)",
            [
                (revision, position, event.key, event.value, event.create_revision, event.lease)
                for position, event in enumerate(events)
            ],
        )
        self._run("UPDATE state SET revision = ?", revision)
        if revision % min(TRIM_EVERY, self._history_revisions) == 0:
            floor = revision - self._history_revisions + 1
            self._run("DELETE FROM events WHERE revision < ?", floor)
            self._run("UPDATE state SET history_floor = max(history_floor, ?)", floor)
        return revision

    def _revoke(self, lease_id: int) -> None:
        if self._run("DELETE FROM leases WHERE id = ?", lease_id).rowcount:
            revision = self._state("revision")
            keys = self._db.execute(
                "SELECT key FROM kv WHERE lease = ? AND lease != 0 ORDER BY key", (lease_id,)
            ).fetchall()
            self._record(self._delete([row[0] for row in keys], revision + 1), revision)

    def _expire(self, now_ms: int) -> None:
        due = self._db.execute(
            "SELECT id FROM leases WHERE expires_ms <= ? ORDER BY expires_ms, id", (now_ms,)
        ).fetchall()
        for row in due:
            self._revoke(row[0])

    def _after_reboot(self, boot: str) -> None:
        for row in self._db.execute("SELECT id FROM leases ORDER BY id").fetchall():
            self._revoke(row[0])
        self._run("UPDATE state SET boot_id = ?", boot)

    def _use_wal(self) -> None:
        """Two processes that create the file at once can refuse each other without waiting; the loser tries again."""
        give_up_ms = boot_ms() + BUSY_TIMEOUT_MS
        while True:
            try:
                self._run("PRAGMA journal_mode = WAL").fetchone()
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or boot_ms() > give_up_ms:
                    raise

    def _open_schema(self, path: str, boot: str) -> None:
        if self._one("PRAGMA user_version")[0] == 0:
            self._write(lambda: self._create_schema(boot))
        found = (self._one("PRAGMA application_id")[0], self._one("PRAGMA user_version")[0])
        if found != (APPLICATION_ID, SCHEMA_VERSION):
            raise ValueError(f"{path} is not a coordinator file of this version of Headrace")

    def _create_schema(self, boot: str) -> None:
        if self._one("SELECT count(*) FROM sqlite_schema")[0]:
            return  # another process was faster, or the file is not ours: the caller looks at its ids
        for statement in _SCHEMA.split(";"):
            self._run(statement)
        self._run("INSERT INTO state VALUES (1, 1, 1, 1, ?)", boot)
        self._run(f"PRAGMA application_id = {APPLICATION_ID}")
        self._run(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _pulse(self) -> Pulse:
        return Pulse(*self._one("SELECT revision, (SELECT min(expires_ms) FROM leases) FROM state"))

    # How to talk to SQLite.

    def _state(self, column: str) -> Any:
        return self._one(f"SELECT {column} FROM state")[0]

    def _one(self, sql: str, *values: object) -> Any:
        return self._db.execute(sql, values).fetchone()

    def _run(self, sql: str, *values: object) -> sqlite3.Cursor:
        return self._db.execute(sql, values)

    def _reading(self, look: Callable[[], T]) -> T:
        self._run("BEGIN")
        try:
            return look()
        finally:
            self._run("COMMIT")

    def _write(self, change: Callable[[], T]) -> T:
        """Any exception means that nothing happened, except OutcomeUnknown: the commit itself failed (R5)."""
        self._run("BEGIN IMMEDIATE")
        try:
            result = change()
        except BaseException:
            self._rollback()
            raise
        try:
            self._run("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            raise OutcomeUnknown(f"commit failed: {error}") from error
        return result

    def _rollback(self) -> None:
        if self._db.in_transaction:  # some errors have rolled back already
            try:
                self._run("ROLLBACK")
            except sqlite3.Error:
                pass  # the error that brought us here is the one to report


def _create_private(path: str) -> None:
    """Make the file readable by its owner only, before SQLite does otherwise; its -wal and -shm copy the mode (X25, S29)."""
    directory = os.path.dirname(path) or "."
    os.makedirs(directory, mode=0o700, exist_ok=True)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        # Never open and close an existing one: that would drop the locks SQLite holds on it in this process.
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{path} is not a regular file") from None
        if found.st_mode & 0o077:
            os.chmod(path, 0o600)
        return
    if os.name == "posix":
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)  # S5
        finally:
            os.close(handle)
