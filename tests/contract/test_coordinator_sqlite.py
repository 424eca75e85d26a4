"""The embedded coordinator: several processes on one file, reboots, a failing disk."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from off_loop import in_a_thread

from headrace.coordinator.port import (
    Compare,
    CoordinatorUnavailable,
    DeletePrefix,
    Event,
    OutcomeUnknown,
    Put,
    Resync,
    WatchBatch,
)
from headrace.coordinator.resolve import ResolvingWriter
from headrace.coordinator.sqlite import SqliteCoordinator
from headrace.coordinator.sqlite_store import SqliteStore

PATIENCE_S = 120.0


class HandClock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


@asynccontextmanager
async def opened(path: Path, **options: object) -> AsyncIterator[SqliteCoordinator]:
    coordinator = await SqliteCoordinator.open(str(path), in_a_thread, **options)  # type: ignore[arg-type]
    try:
        yield coordinator
    finally:
        await coordinator.close()


WRITER = """
import asyncio, sys
from headrace.coordinator.sqlite import SqliteCoordinator
from headrace.coordinator.port import Compare, Put

async def in_a_thread(work):
    return await asyncio.get_running_loop().run_in_executor(None, work)

async def main(path, name, times, lease_ms):
    one = await SqliteCoordinator.open(path, in_a_thread)
    if lease_ms:
        lease = await one.grant(lease_ms)
        await one.txn([], [Put("member/" + name, b"", lease.id)])
    done = 0
    while done < times:
        held = await one.get("n")
        n = int(held.value) if held else 0
        mine = Compare.mod_revision("n", held.mod_revision if held else 0)
        if (await one.txn([mine], [Put("n", str(n + 1).encode()), Put(f"by/{name}", str(done).encode())])).succeeded:
            done += 1
            print(done, flush=True)
    await one.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""


async def start_writer(path: Path, name: str, times: int, lease_ms: int = 0) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        WRITER,
        str(path),
        name,
        str(times),
        str(lease_ms),
        stdout=asyncio.subprocess.PIPE,
    )


async def test_processes_share_a_file_and_lose_no_increment(tmp_path: Path) -> None:
    """They also create it at the same moment."""
    path = tmp_path / "c.db"
    writers = [await start_writer(path, name, 40) for name in "abc"]
    async with opened(path) as one:
        seen: list[Event] = []
        async with aclosing(one.watch("n", 1)) as updates, asyncio.timeout(PATIENCE_S):
            while not seen or seen[-1].value != b"120":
                update = await anext(updates)
                assert isinstance(update, WatchBatch)
                seen.extend(update.events)
        assert [event.value for event in seen] == [str(number + 1).encode() for number in range(120)]
        for writer in writers:
            assert await writer.wait() == 0


async def test_a_writer_killed_in_mid_flight_leaves_whole_transactions(tmp_path: Path) -> None:
    """kill -9 a process that holds a lease; its key goes when the lease does, by the poll of another process."""
    path = tmp_path / "c.db"
    async with opened(path) as one:
        writer = await start_writer(path, "victim", 1_000_000, lease_ms=400)
        assert writer.stdout is not None
        for _ in range(25):
            await writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        await writer.wait()
        snapshot = await one.read("")
        values = {item.key: item for item in snapshot.items}
        assert int(values["n"].value) == int(values["by/victim"].value) + 1 >= 25
        assert values["n"].mod_revision == values["by/victim"].mod_revision
        assert (await one.txn([], [Put("alive", b"")])).succeeded
        if "member/victim" in values:
            async with aclosing(one.watch("member/", snapshot.revision + 1)) as updates:
                async with asyncio.timeout(PATIENCE_S):
                    update = await anext(updates)
            assert isinstance(update, WatchBatch)
            assert [(event.key, event.value) for event in update.events] == [("member/victim", None)]


async def test_a_change_by_another_process_is_seen(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as one, opened(tmp_path / "c.db") as other:
        start = (await one.read("")).revision
        async with aclosing(one.watch("", start + 1)) as updates, asyncio.timeout(PATIENCE_S):
            for number in range(10):
                pending = asyncio.ensure_future(anext(updates))
                await other.txn([], [Put("k", str(number).encode())])
                await pending


async def test_everything_survives_closing_and_a_second_life(tmp_path: Path) -> None:
    clock = HandClock()
    path = tmp_path / "c.db"
    async with opened(path, lease_clock_ms=clock, boot="one") as first:
        lease = await first.grant(10_000)
        await first.txn([], [Put("a", b"1"), Put("leased", b"", lease.id)])
        before = await first.read("")
    clock.now += 9_000
    async with opened(path, lease_clock_ms=clock, boot="one") as second:
        assert await second.read("") == before
        assert await second.keep_alive(lease.id) == 10_000
        async with aclosing(second.watch("a", before.revision)) as updates:
            update = await anext(updates)
            assert isinstance(update, WatchBatch) and update.events[0].value == b"1"
        clock.now += 10_001
        assert await second.keep_alive(lease.id) == 0
        assert [item.key for item in (await second.read("")).items] == ["a"]
        assert (await second.grant(1_000)).id != lease.id


async def test_after_a_reboot_every_lease_is_over(tmp_path: Path) -> None:
    """The boot clock begins anew, and whoever held a lease is dead for certain."""
    clock = HandClock()
    path = tmp_path / "c.db"
    async with opened(path, lease_clock_ms=clock, boot="one") as first:
        lease = await first.grant(10_000)
        await first.txn([], [Put("leased", b"", lease.id), Put("free", b"")])
        start = (await first.read("")).revision
    clock.now = 5
    async with opened(path, lease_clock_ms=clock, boot="two") as second:
        assert [item.key for item in (await second.read("")).items] == ["free"]
        async with aclosing(second.watch("", start + 1)) as updates:
            update = await anext(updates)
        assert isinstance(update, WatchBatch)
        assert [(event.key, event.value) for event in update.events] == [("leased", None)]


async def test_a_boot_clock_that_went_back_never_makes_a_lease_longer(tmp_path: Path) -> None:
    clock = HandClock()
    path = tmp_path / "c.db"
    async with opened(path, lease_clock_ms=clock, boot="one") as first:
        lease = await first.grant(10_000)
        await first.txn([], [Put("leased", b"", lease.id)])
    clock.now = 5
    async with opened(path, lease_clock_ms=clock, boot="one") as second:
        clock.now = 10_006
        assert await second.keep_alive(lease.id) == 0


async def test_the_file_is_private(tmp_path: Path) -> None:
    """X25, S29."""
    path = tmp_path / "meta" / "c.db"
    async with opened(path) as one:
        await one.txn([], [Put("a", b"")])
        for name in os.listdir(path.parent):
            assert os.stat(path.parent / name).st_mode & 0o077 == 0, name
    os.chmod(path, 0o644)
    async with opened(path):
        assert os.stat(path).st_mode & 0o077 == 0
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with pytest.raises(ValueError, match="regular file"):
        await SqliteCoordinator.open(str(link), in_a_thread)


async def test_only_our_own_files_are_opened(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as database:
        database.execute("CREATE TABLE t (x)")
    database.close()
    with pytest.raises(ValueError, match="not a coordinator file"):
        await SqliteCoordinator.open(str(foreign), in_a_thread)
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"not a database at all" * 100)
    with pytest.raises(CoordinatorUnavailable):
        await SqliteCoordinator.open(str(garbage), in_a_thread)
    newer = tmp_path / "newer.db"
    async with opened(newer):
        pass
    with sqlite3.connect(newer) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(ValueError, match="version"):
        await SqliteCoordinator.open(str(newer), in_a_thread)


async def test_a_locked_file_is_unavailable_and_nothing_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.coordinator.sqlite_store.BUSY_TIMEOUT_MS", 50)
    path = tmp_path / "c.db"
    async with opened(path) as one:
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(CoordinatorUnavailable):
            await one.txn([], [Put("a", b"")])
        assert await one.get("a") is None  # readers do not wait for the writer
        blocker.execute("COMMIT")
        blocker.close()
        assert (await one.txn([], [Put("a", b"")])).succeeded


class FailingCommit(SqliteStore):
    """The disk fails at a commit: before or after the transaction is in the file."""

    fail_with: int | None = None
    fail_after = False
    writing = False

    def _run(self, sql: str, *values: object) -> sqlite3.Cursor:
        if sql.startswith("BEGIN"):
            self.writing = sql == "BEGIN IMMEDIATE"
        if sql == "COMMIT" and self.fail_with is not None and self.writing:
            code, self.fail_with = self.fail_with, None
            super()._run("COMMIT" if self.fail_after else "ROLLBACK")
            error = sqlite3.OperationalError("disk trouble")
            error.sqlite_errorcode = code
            raise error
        return super()._run(sql, *values)


def failing(path: Path) -> tuple[SqliteCoordinator, FailingCommit]:
    store = FailingCommit(str(path), now_ms=0, boot="")
    return SqliteCoordinator(store, in_a_thread, lambda: 0), store


@pytest.mark.parametrize("applied", [False, True])
async def test_a_failed_commit_is_unknown_and_can_be_found_out(tmp_path: Path, applied: bool) -> None:
    """R5; a full disk is not the end of the file (S15)."""
    one, store = failing(tmp_path / "c.db")
    writer = ResolvingWriter(one, "writers/1", os.urandom)
    await writer.txn([], [Put("a", b"0")])
    store.fail_with, store.fail_after = sqlite3.SQLITE_FULL, applied
    with pytest.raises(OutcomeUnknown):
        await one.txn([], [Put("b", b"")])
    assert (await one.get("b") is not None) is applied
    store.fail_with, store.fail_after = sqlite3.SQLITE_FULL, applied
    result = await writer.txn([Compare.value("a", b"0")], [Put("a", b"1")])
    held = await one.get("a")
    assert result.succeeded is applied and held is not None and held.value == (b"1" if applied else b"0")
    await in_a_thread(store.close)


async def test_a_failed_write_back_is_final(tmp_path: Path) -> None:
    """S7: what the page cache shows after it may not be on the disk. Watches fall silent but do not end (R36)."""
    one, store = failing(tmp_path / "c.db")
    watching = asyncio.ensure_future(anext(one.watch("", 1)))
    await asyncio.sleep(0)
    store.fail_with = sqlite3.SQLITE_IOERR
    with pytest.raises(OutcomeUnknown):
        await one.txn([], [Put("b", b"")])
    for call in (one.get("b"), one.read(""), one.txn([], [Put("c", b"")]), one.keep_alive(1)):
        with pytest.raises(CoordinatorUnavailable):
            await call
    done, _ = await asyncio.wait([watching], timeout=0.05)
    assert not done
    await one.close()
    await asyncio.gather(watching, return_exceptions=True)
    await in_a_thread(store.close)


async def test_a_hanging_disk_does_not_hang_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S10. What has begun is unknown; what waits behind it did not happen."""
    stuck = asyncio.Event()
    hang = False

    async def slow_disk(work: Any) -> Any:
        if hang:
            await stuck.wait()
        return await in_a_thread(work)

    store = SqliteStore(str(tmp_path / "c.db"), now_ms=0, boot="")
    one = SqliteCoordinator(store, slow_disk, lambda: 0)
    await one.txn([], [Put("a", b"")])
    hang = True
    monkeypatch.setattr("headrace.coordinator.sqlite.DEADLINE_S", 0.1)
    first = asyncio.ensure_future(one.txn([], [Put("b", b"")]))
    await asyncio.sleep(0)
    behind = asyncio.ensure_future(one.txn([], [Put("c", b"")]))
    with pytest.raises(OutcomeUnknown):
        await first
    with pytest.raises(CoordinatorUnavailable):
        await behind
    monkeypatch.setattr("headrace.coordinator.sqlite.DEADLINE_S", PATIENCE_S)
    stuck.set()
    hang = False
    async with asyncio.timeout(PATIENCE_S):
        while await one.get("b") is None:  # it landed after all
            pass
    assert await one.get("c") is None
    await one.close()
    await in_a_thread(store.close)


async def test_history_is_bounded_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path, history_revisions=20) as one:
        for number in range(70):
            await one.txn([], [Put("k", str(number).encode())])
        async with aclosing(one.watch("k", 2)) as updates:
            assert isinstance(await anext(updates), Resync)
        async with aclosing(one.watch("k", 60)) as updates:
            update = await anext(updates)
            assert isinstance(update, WatchBatch) and len(update.events) == 12
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM events").fetchone()[0] <= 40
    database.close()


async def test_a_large_revision_is_one_batch(tmp_path: Path) -> None:
    """More keys in one transaction than a batch holds otherwise; and a batch ends between revisions."""
    store = SqliteStore(str(tmp_path / "c.db"), now_ms=0, boot="")
    for start in range(0, 1_280, 128):
        store.txn([], [Put(f"k/{number:04d}", b"") for number in range(start, start + 128)])
    batch = store.since("k/", 2)
    assert batch is not None and len(batch.events) == 1_024 and batch.revision == 9
    rest = store.since("k/", batch.revision + 1)
    assert rest is not None and len(rest.events) == 256 and rest.revision == 11
    store.txn([], [DeletePrefix("k/")])
    gone = store.since("k/", 12)
    assert gone is not None and len(gone.events) == 1_280
    store.close()


async def test_f17_a_watch_outlives_a_file_that_can_not_be_looked_at_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poller that ended by an exception would leave this process blind to what the others on the host write."""
    usual, raised = SqliteStore.stamp, asyncio.Event()

    def broken(self: SqliteStore) -> object:
        if self is watcher._store and not raised.is_set():
            raised.set()
            raise FileNotFoundError("gone for a moment")
        return usual(self)

    async with opened(tmp_path / "c.db") as watcher, opened(tmp_path / "c.db") as writer:
        monkeypatch.setattr(SqliteStore, "stamp", broken)
        async with aclosing(watcher.watch("k/", 1)) as updates, asyncio.timeout(PATIENCE_S):
            watcher._poke.fire()
            await raised.wait()
            await writer.txn([], [Put("k/1", b"")])
            async for update in updates:
                if isinstance(update, WatchBatch) and any(event.key == "k/1" for event in update.events):
                    break


def copy_database(source: Path, target: Path) -> None:
    """As `sqlite3 target ".restore source"` does it, with the file in use."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


async def test_f10_a_restored_file_is_noticed(tmp_path: Path) -> None:
    """A backup is put back into the file while it is watched: what the watch had told is taken back."""
    path, backup = tmp_path / "coordinator.db", tmp_path / "backup.db"
    async with opened(path) as one:
        await one.txn([], [Put("w/a", b"early")])
        copy_database(path, backup)
        for number in range(5):
            await one.txn([], [Put("w/b", str(number).encode())])
        async with aclosing(one.watch("w/", 0)) as updates, asyncio.timeout(PATIENCE_S):
            first = await anext(updates)
            assert isinstance(first, Resync) and not first.restored and len(first.snapshot.items) == 2
            await in_a_thread(lambda: copy_database(backup, path))
            second = await anext(updates)
            assert isinstance(second, Resync) and second.restored
            assert [item.key for item in second.snapshot.items] == ["w/a"]
            await one.txn([], [Put("w/c", b"later")])
            third = await anext(updates)
            assert isinstance(third, WatchBatch) and [event.key for event in third.events] == ["w/c"]


@pytest.mark.parametrize("how", ["replaced", "removed"])
async def test_f10_a_file_that_is_not_there_any_more_is_not_written_to(tmp_path: Path, how: str) -> None:
    """Whoever has the old one open would agree with nobody, and what it writes would be gone at its end."""
    path, other = tmp_path / "coordinator.db", tmp_path / "other.db"
    async with opened(other) as one:
        await one.txn([], [Put("other", b"")])
    async with opened(path) as one, asyncio.timeout(PATIENCE_S):
        await one.txn([], [Put("mine", b"")])
        await in_a_thread(lambda: other.replace(path) if how == "replaced" else path.unlink())
        with pytest.raises(CoordinatorUnavailable, match="start the broker again"):
            while True:
                await one.txn([], [Put("mine", b"")])
                await asyncio.sleep(0.01)
