"""Adapter: the embedded coordinator: one SQLite file, shared by the broker processes of one host.

Blocking work goes through the injected `run_blocking`, one call at a time on one connection. Own changes wake the watchers
at once; those of other processes by a look at the file's time every 20 ms (while others write) to 50 ms, and a real
poll when it changed, when a lease is due, and every quarter of a second in any case. Every process polls, so a lease
expires even when its holder is dead.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from headrace.coordinator.port import (
    Compare,
    CoordinatorError,
    CoordinatorUnavailable,
    KeyLease,
    KeyValue,
    Operation,
    OutcomeUnknown,
    Resync,
    Snapshot,
    TxnResult,
    WatchUpdate,
)
from headrace.coordinator.signal import Signal
from headrace.coordinator.sqlite_store import HISTORY_REVISIONS, Pulse, SqliteStore, boot_id, boot_ms

T = TypeVar("T")
log = logging.getLogger(__name__)

DEADLINE_S = 5.0
"""SQLite waits 2 s for a lock by itself; a disk that hangs longer than this is treated as gone (S10)."""

LOOK_BUSY_S = 0.02
LOOK_IDLE_S = 0.05
LOOK_OWN_S = 0.5
"""At a file that nobody else has written to so far."""
POLL_WATCHED_S = 0.25
POLL_UNWATCHED_S = 1.0
RETRY_S = 0.5

_FATAL = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN}


class RunBlocking(Protocol):
    """Runs a blocking function in a thread and awaits it."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class SqliteCoordinator:
    """Made by `open`."""

    def __init__(
        self,
        store: SqliteStore,
        run_blocking: RunBlocking,
        lease_clock_ms: Callable[[], int],
        *,
        is_own: bool = False,
    ) -> None:
        self._store = store
        self._run_blocking = run_blocking
        self._now_ms = lease_clock_ms
        self._turn = asyncio.Lock()
        self._changed = Signal()
        self._poke = Signal()
        self._revision = 0  # the highest seen by this process
        self._watchers = 0
        self._is_own = is_own
        """Nobody else is known to write to the file, so there is little to look for."""
        self._dead: str | None = None  # why nothing works any more
        self._closed = False
        self._poller: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        path: str,
        run_blocking: RunBlocking,
        *,
        lease_clock_ms: Callable[[], int] = boot_ms,
        boot: str | None = None,
        history_revisions: int = HISTORY_REVISIONS,
        is_own: bool = False,
    ) -> SqliteCoordinator:
        """Raises ValueError when the file is not ours, CoordinatorUnavailable when it cannot be opened.

        `is_own`: of one broker alone, as far as anybody knows. Should another write to it all the same, that is seen a little later,
        and only once.
        """
        identity = boot_id() if boot is None else boot

        def work() -> SqliteStore:
            return SqliteStore(
                path, now_ms=lease_clock_ms(), boot=identity, history_revisions=history_revisions
            )

        try:
            store = await run_blocking(work)
        except (sqlite3.Error, OSError) as error:
            raise CoordinatorUnavailable(f"cannot open {path}: {error}") from error
        coordinator = cls(store, run_blocking, lease_clock_ms, is_own=is_own)
        coordinator._poller = asyncio.create_task(coordinator._poll(), name="coordinator-poll")
        return coordinator

    async def get(self, key: str) -> KeyValue | None:
        return await self._call(lambda: self._store.get(key))

    async def read(self, prefix: str) -> Snapshot:
        return await self._call(lambda: self._store.read(prefix))

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        result = await self._call(lambda: self._store.txn(compares, operations), writes=True)
        self._saw(result.revision)
        return result

    async def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchUpdate, None]:
        position = from_revision
        self._watchers += 1
        self._poke.fire()
        try:
            while not self._closed:
                ticket = self._changed.ticket()
                try:
                    update = await self._pull(prefix, position)
                except CoordinatorError as error:
                    log.warning("coordinator watch waits: %s", error)
                    # A dead file stays dead; the watch is silent then, but does not end (R36).
                    await self._changed.wait(ticket, RETRY_S if self._dead is None else None)
                    continue
                if isinstance(update, Resync):
                    position = update.snapshot.revision + 1
                    yield update
                    continue
                position = max(position, update.revision + 1)
                if update.events:
                    yield update
                else:
                    await self._changed.wait(ticket)
        finally:
            self._watchers -= 1

    async def grant(self, ttl_ms: int) -> KeyLease:
        lease = await self._call(lambda: self._store.grant(ttl_ms, self._now_ms()))
        self._poke.fire()  # the poller may have to wake earlier than it meant to
        return lease

    async def keep_alive(self, lease_id: int) -> int:
        return await self._call(lambda: self._store.keep_alive(lease_id, self._now_ms()))

    async def revoke(self, lease_id: int) -> None:
        self._saw(await self._call(lambda: self._store.revoke(lease_id)))

    async def close(self) -> None:
        self._closed = True
        self._dead = self._dead or "the coordinator is closed"
        self._changed.fire()
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)
            self._poller = None
            try:
                async with (
                    asyncio.timeout(DEADLINE_S),
                    self._turn,
                ):  # what still runs in a thread uses the connection
                    await self._run_blocking(self._store.close)
            except TimeoutError:
                log.warning("the coordinator file is left open: its disk does not answer")

    async def _pull(self, prefix: str, position: int) -> WatchUpdate:
        batch = await self._call(lambda: self._store.since(prefix, position)) if position else None
        if batch is not None and batch.revision + 1 >= position:
            return batch
        snapshot = await self.read(prefix)
        # Revisions only rise, unless somebody put a backup into the file (F10).
        return Resync(snapshot, restored=snapshot.revision + 1 < position)

    def _saw(self, revision: int) -> None:
        if revision > self._revision:
            self._revision = revision
            self._changed.fire()

    async def _poll(self) -> None:
        look_s = LOOK_IDLE_S
        while self._dead is None:
            try:
                look_s = await self._poll_once(look_s)
            except Exception:
                # The file went away for a moment, or a bug: a poller that ended would leave watchers waiting for ever (F17).
                log.exception("the coordinator file can't be looked at; trying again")
                await asyncio.sleep(RETRY_S)

    async def _poll_once(self, look_s: float) -> float:
        """Ask, then wait for a reason to ask again; how often to look at the file from now on."""
        ticket = self._poke.ticket()
        stamp = self._store.stamp()
        before = self._revision
        wait_s = RETRY_S
        if self._store.is_replaced():
            # What we have open is not what the others see: a backup was put in its place, or it was taken away (F10).
            self._die(
                "the coordinator file was replaced or removed while it was in use; start the broker again"
            )
            return look_s
        try:
            pulse = await self._call(lambda: self._store.poll(self._now_ms()))
        except CoordinatorError as error:
            log.warning("coordinator poll: %s", error)
        else:
            if 0 < self._revision < pulse.revision:
                self._is_own = False
            self._saw(pulse.revision)
            if pulse.revision < before:
                self._revision = pulse.revision
                self._changed.fire()
            wait_s = self._until_next_poll_s(pulse)
        if self._is_own:
            look_s = LOOK_OWN_S
        else:
            look_s = LOOK_BUSY_S if self._revision > before else min(LOOK_IDLE_S, look_s * 1.25)
        while wait_s > 0:
            step_s = min(look_s, wait_s) if self._watchers else wait_s
            wait_s -= step_s
            if await self._poke.wait(ticket, step_s) or self._store.stamp() != stamp:
                break
        return look_s

    def _until_next_poll_s(self, pulse: Pulse) -> float:
        longest_s = POLL_WATCHED_S if self._watchers and not self._is_own else POLL_UNWATCHED_S
        if pulse.next_expiry_ms is None:
            return longest_s
        due_s = (pulse.next_expiry_ms - self._now_ms()) / 1000
        return min(longest_s, max(LOOK_BUSY_S, due_s))

    async def _call(self, work: Callable[[], T], *, writes: bool = False) -> T:
        """One at a time, each with a deadline. A cancelled caller leaves the connection busy until its work ends.

        `writes`: a failure after the start leaves the outcome unknown, and that matters to the caller.
        """
        if self._dead is not None:
            raise CoordinatorUnavailable(self._dead)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._turn.acquire()
        except TimeoutError as error:
            raise CoordinatorUnavailable("the coordinator's disk does not answer") from error
        running = asyncio.ensure_future(self._run_blocking(work))
        running.add_done_callback(self._end_turn)
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await asyncio.shield(running)
        except TimeoutError as error:
            failure = OutcomeUnknown if writes else CoordinatorUnavailable
            raise failure("the coordinator's disk does not answer") from error
        except OutcomeUnknown as error:
            if isinstance(error.__cause__, sqlite3.Error):
                self._judge(error.__cause__)
            if not writes:
                raise CoordinatorUnavailable(str(error)) from error
            raise
        except sqlite3.Error as error:
            self._judge(error)
            raise CoordinatorUnavailable(f"coordinator file: {error}") from error

    def _end_turn(self, running: asyncio.Future[T]) -> None:
        self._turn.release()
        if not running.cancelled():
            running.exception()  # mark it seen: its caller may have been cancelled

    def _judge(self, error: sqlite3.Error) -> None:
        """A failed write-back is final: what the page cache shows afterwards may not be on the disk (S7)."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _FATAL:
            self._die(f"the coordinator file failed: {error}")

    def _die(self, why: str) -> None:
        if self._dead is None:
            log.error("the coordinator file is not used again by this process: %s", why)
            self._dead = why
            self._changed.fire()
