"""One suite for every coordinator: what the port promises, asked of memory, SQLite and a real etcd."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from itertools import count
from pathlib import Path

import pytest
from mirror import Mirror
from off_loop import in_a_thread

from headrace.coordinator.etcd import EtcdCoordinator, EtcdSettings
from headrace.coordinator.memory import MemoryCoordinator
from headrace.coordinator.port import (
    MAX_TXN_BYTES,
    MAX_TXN_OPERATIONS,
    RESERVED_LEAF,
    Compare,
    CompareTarget,
    Coordinator,
    CoordinatorUnavailable,
    Delete,
    DeletePrefix,
    Event,
    LeaseNotFound,
    Operation,
    Put,
    Resync,
    WatchBatch,
    WatchUpdate,
)
from headrace.coordinator.resolve import ResolvingWriter
from headrace.coordinator.sqlite import SqliteCoordinator
from headrace.coordinator.store import RevisionedStore
from headrace.net.h1_client import Origin
from headrace.testing.etcd_server import EtcdServer, etcd_binary

PATIENCE_S = 120.0
_namespaces = count()


class RealClock:
    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Backend:
    """`open` gives one more client of the same store."""

    def __init__(
        self,
        open_one: Callable[[], Awaitable[Coordinator]],
        *,
        lease_ms: int,
        compact: Callable[[int], None] | None,
    ) -> None:
        self._open_one = open_one
        self.lease_ms = lease_ms
        self.compact = compact
        self._opened: list[Coordinator] = []

    async def open(self) -> Coordinator:
        coordinator = await self._open_one()
        self._opened.append(coordinator)
        return coordinator

    async def close(self) -> None:
        for coordinator in self._opened:
            await coordinator.close()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    if etcd_binary() is None:
        pytest.skip("etcd is not installed (Debian: apt install etcd-server)")
    server = EtcdServer(tmp_path_factory.mktemp("etcd")).start()
    yield server
    server.stop()


@pytest.fixture(params=["memory", "sqlite", "etcd"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    if request.param == "memory":
        store = RevisionedStore()

        async def open_memory() -> Coordinator:
            return MemoryCoordinator(RealClock(), store)

        made = Backend(open_memory, lease_ms=150, compact=store.compact)
    elif request.param == "sqlite":

        async def open_sqlite() -> Coordinator:
            return await SqliteCoordinator.open(str(tmp_path / "c.db"), in_a_thread, history_revisions=50)

        made = Backend(open_sqlite, lease_ms=150, compact=None)
    else:
        server: EtcdServer = request.getfixturevalue("etcd")
        settings = EtcdSettings((Origin(server.host, server.port),), namespace=f"/t{next(_namespaces)}/")

        async def open_etcd() -> Coordinator:
            return EtcdCoordinator(settings, token_bytes=random.randbytes)

        made = Backend(open_etcd, lease_ms=1000, compact=server.compact)
    yield made
    await made.close()


@pytest.fixture
async def one(backend: Backend) -> Coordinator:
    return await backend.open()


async def put(coordinator: Coordinator, key: str, value: bytes = b"v", lease: int = 0) -> int:
    result = await coordinator.txn([], [Put(key, value, lease)])
    assert result.succeeded
    return result.revision


async def collect(
    updates: AsyncIterator[WatchUpdate], enough: Callable[[list[WatchUpdate]], bool]
) -> list[WatchUpdate]:
    found: list[WatchUpdate] = []
    async with asyncio.timeout(PATIENCE_S):
        while not enough(found):
            found.append(await anext(updates))
    return found


def events_of(updates: list[WatchUpdate]) -> list[Event]:
    return [event for update in updates if isinstance(update, WatchBatch) for event in update.events]


def at_least(number: int) -> Callable[[list[WatchUpdate]], bool]:
    return lambda updates: len(events_of(updates)) >= number


# Keys and transactions.


async def test_a_key_has_the_revisions_of_its_life(one: Coordinator) -> None:
    assert await one.get("a") is None
    born = await put(one, "a", b"1")
    changed = await put(one, "a", b"2")
    held = await one.get("a")
    assert held is not None
    assert (held.value, held.create_revision, held.mod_revision, held.lease) == (b"2", born, changed, 0)
    assert changed == born + 1

    assert (await one.txn([], [Delete("a")])).revision == changed + 1
    assert await one.get("a") is None
    reborn = await put(one, "a", b"")
    held = await one.get("a")
    assert held is not None and held.create_revision == held.mod_revision == reborn and held.value == b""


async def test_compare_and_swap(one: Coordinator) -> None:
    assert (await one.txn([Compare.mod_revision("k", 0)], [Put("k", b"1")])).succeeded
    held = await one.get("k")
    assert held is not None
    assert not (await one.txn([Compare.mod_revision("k", 0)], [Put("k", b"x")])).succeeded
    assert not (await one.txn([Compare.mod_revision("k", held.mod_revision - 1)], [Put("k", b"x")])).succeeded
    won = await one.txn([Compare.mod_revision("k", held.mod_revision)], [Put("k", b"2")])
    assert won.succeeded and won.revision > held.mod_revision
    now = await one.get("k")
    assert now is not None and now.value == b"2" and now.mod_revision == won.revision


async def test_create_revision_fences_an_earlier_life(one: Coordinator) -> None:
    """R1: the controller's epoch is its key's create_revision."""
    first_life = await put(one, "controller", b"a")
    await one.txn([], [Delete("controller")])
    second_life = await put(one, "controller", b"b")
    await put(one, "controller", b"b2")
    assert not (await one.txn([Compare.create_revision("controller", first_life)], [Put("p", b"")])).succeeded
    assert (await one.txn([Compare.create_revision("controller", second_life)], [Put("p", b"")])).succeeded


async def test_comparing_values_and_leases(one: Coordinator, backend: Backend) -> None:
    lease = await one.grant(60_000)
    await one.txn([], [Put("v", b"x"), Put("empty", b""), Put("leased", b"", lease.id)])
    for compare, expected in [
        (Compare.value("v", b"x"), True),
        (Compare.value("v", b"y"), False),
        (Compare.value("empty", b""), True),
        (Compare.value("absent", b""), False),  # an absent key equals no value
        (Compare.lease("leased", lease.id), True),
        (Compare.lease("v", lease.id), False),
        (Compare.lease("v", 0), True),
        (Compare.lease("absent", 0), True),
        (Compare.create_revision("absent", 0), True),
    ]:
        assert (await one.txn([compare], [])).succeeded is expected, compare


async def test_a_transaction_is_one_revision_or_nothing(one: Coordinator) -> None:
    await one.txn([], [Put("t/1", b""), Put("t/2", b""), Put("t0", b""), Put("x", b"")])
    before = await one.read("")
    refused = await one.txn(
        [Compare.value("x", b""), Compare.mod_revision("t/1", 0)],
        [Put("new", b""), Delete("x"), DeletePrefix("t/")],
    )
    assert not refused.succeeded
    assert await one.read("") == before

    done = await one.txn([Compare.value("x", b"")], [Put("new", b"n"), Delete("x"), DeletePrefix("t/")])
    after = await one.read("")
    assert done.succeeded and done.revision == after.revision == before.revision + 1
    assert [(item.key, item.mod_revision) for item in after.items] == [
        ("new", done.revision),
        ("t0", before.revision),
    ]


async def test_what_changes_nothing_makes_no_revision(one: Coordinator) -> None:
    before = await put(one, "a")
    for operations in ([], [Delete("absent")], [DeletePrefix("absent/")]):
        result = await one.txn([], operations)
        assert result.succeeded and result.revision == before


async def test_a_prefix_is_exact(one: Coordinator) -> None:
    keys = ["a", "a/", "a/b", "a/é", "a/가", "a/😀", "a0", "b"]
    await one.txn([], [Put(key, b"") for key in keys])
    for prefix in ["", "a", "a/", "a/é", "a/가", "a/😀", "b", "c"]:
        snapshot = await one.read(prefix)
        assert [item.key for item in snapshot.items] == [key for key in keys if key.startswith(prefix)], (
            prefix
        )


async def test_more_keys_than_a_page(one: Coordinator) -> None:
    keys = [f"many/{number:05d}" for number in range(2_304)]
    for start in range(0, len(keys), MAX_TXN_OPERATIONS):
        await one.txn([], [Put(key, b"v") for key in keys[start : start + MAX_TXN_OPERATIONS]])
    snapshot = await one.read("many/")
    assert [item.key for item in snapshot.items] == keys
    assert (await one.txn([], [DeletePrefix("many/")])).revision == snapshot.revision + 1
    assert (await one.read("many/")).items == []


async def test_binary_values_and_long_keys(one: Coordinator) -> None:
    value = bytes(range(256)) * 64
    key = "k" * 900 + "/ü"
    await put(one, key, value)
    held = await one.get(key)
    assert held is not None and (held.key, held.value) == (key, value)


@pytest.mark.parametrize(
    ("compares", "operations"),
    [
        ([], [Put("a", b""), Put("a", b"")]),
        ([], [Put("a", b""), Delete("a")]),
        ([], [Put("a/b", b""), DeletePrefix("a/")]),
        ([], [Put("", b"")]),
        ([], [Put("a\n", b"")]),
        ([], [Put("a\x00b", b"")]),
        ([], [Put("a/" + RESERVED_LEAF, b"")]),
        ([Compare.mod_revision("", 0)], []),
        ([], [Put("k" * 1025, b"")]),
        ([], [Put(f"k{number}", b"") for number in range(MAX_TXN_OPERATIONS + 1)]),
        ([Compare.mod_revision(f"k{number}", 0) for number in range(MAX_TXN_OPERATIONS + 1)], []),
        ([], [Put("big", bytes(MAX_TXN_BYTES + 1))]),
    ],
)
async def test_what_no_coordinator_takes(
    one: Coordinator, compares: list[Compare], operations: list[Operation]
) -> None:
    before = await one.read("")
    with pytest.raises(ValueError):
        await one.txn(compares, operations)
    assert await one.read("") == before


async def test_the_largest_transaction_is_taken(one: Coordinator) -> None:
    operations = [Put(f"k{number}", bytes(8_000)) for number in range(MAX_TXN_OPERATIONS)]
    assert (await one.txn([Compare.mod_revision(put.key, 0) for put in operations], operations)).succeeded


# Concurrency.


async def test_of_many_swaps_exactly_one_wins(backend: Backend) -> None:
    clients = [await backend.open() for _ in range(3)]
    for round_number in range(5):
        key = f"race/{round_number}"
        results = await asyncio.gather(
            *(
                clients[task % 3].txn([Compare.mod_revision(key, 0)], [Put(key, str(task).encode())])
                for task in range(20)
            )
        )
        winners = [task for task, result in enumerate(results) if result.succeeded]
        held = await clients[0].get(key)
        assert len(winners) == 1 and held is not None and held.value == str(winners[0]).encode()


async def test_a_counter_loses_no_increment(backend: Backend) -> None:
    clients = [await backend.open() for _ in range(2)]
    await put(clients[0], "n", b"0")

    async def increment(client: Coordinator, times: int) -> None:
        while times:
            held = await client.get("n")
            assert held is not None
            value = str(int(held.value) + 1).encode()
            if (
                await client.txn([Compare.mod_revision("n", held.mod_revision)], [Put("n", value)])
            ).succeeded:
                times -= 1

    await asyncio.gather(*(increment(clients[task % 2], 8) for task in range(6)))
    held = await clients[1].get("n")
    assert held is not None and held.value == b"48"


async def test_a_read_sees_every_write_that_was_answered_before(backend: Backend) -> None:
    """R2."""
    writer, reader = await backend.open(), await backend.open()
    for number in range(30):
        revision = await put(writer, "seen", str(number).encode())
        held = await reader.get("seen")
        assert held is not None and held.value == str(number).encode()
        assert (await reader.read("seen")).revision >= revision


async def test_a_cancelled_call_leaves_the_client_usable(one: Coordinator) -> None:
    for number in range(10):
        call = asyncio.ensure_future(put(one, "cancelled", str(number).encode()))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert await put(one, "cancelled", b"last") > 0
    held = await one.get("cancelled")
    assert held is not None and held.value == b"last"


# Watches.


async def test_a_watch_tells_everything_in_order(one: Coordinator) -> None:
    """R3: from the snapshot's revision on, nothing is missing; one revision is never split."""
    start = (await one.read("w/")).revision
    first = await one.txn([], [Put("w/a", b"1"), Put("w/b", b"2"), Put("other", b"")])
    second = await one.txn([], [Put("w/a", b"3"), DeletePrefix("w/b")])
    third = await one.txn([], [DeletePrefix("w/")])
    async with aclosing(one.watch("w/", start + 1)) as updates:
        found = await collect(updates, at_least(5))
    assert events_of(found) == [
        Event("w/a", b"1", first.revision, first.revision),
        Event("w/b", b"2", first.revision, first.revision),
        Event("w/a", b"3", first.revision, second.revision),
        Event("w/b", None, 0, second.revision),
        Event("w/a", None, 0, third.revision),
    ]
    assert isinstance(found[-1], WatchBatch) and found[-1].revision >= third.revision
    for update in found:
        assert isinstance(update, WatchBatch)
        assert all(event.mod_revision <= update.revision for event in update.events)


async def test_a_watch_from_the_middle_begins_there(one: Coordinator) -> None:
    revisions = [await put(one, "m/k", str(number).encode()) for number in range(6)]
    async with aclosing(one.watch("m/", revisions[3])) as updates:
        found = events_of(await collect(updates, at_least(3)))
    assert [event.mod_revision for event in found] == revisions[3:]


async def test_a_watch_loses_nothing_while_others_write(backend: Backend) -> None:
    watcher, *writers = [await backend.open() for _ in range(3)]
    start = (await watcher.read("live/")).revision

    async def write(writer: Coordinator, name: str) -> None:
        for number in range(60):
            await put(writer, f"live/{name}", str(number).encode())

    async with aclosing(watcher.watch("live/", start + 1)) as updates, asyncio.TaskGroup() as writing:
        for name, writer in zip("ab", writers, strict=True):
            writing.create_task(write(writer, name))
        found = await collect(updates, lambda seen: _last_values(seen) == {"live/a": b"59", "live/b": b"59"})
    mirror = Mirror()
    for update in found:
        mirror.apply(update)
    assert mirror.items.keys() == {"live/a", "live/b"}
    if not any(isinstance(update, Resync) for update in found):
        events = events_of(found)
        assert [event.mod_revision for event in events] == sorted({event.mod_revision for event in events})
        assert [event.value for event in events if event.key == "live/a"] == [
            str(number).encode() for number in range(60)
        ]


def _last_values(updates: list[WatchUpdate]) -> dict[str, bytes]:
    mirror = Mirror()
    for update in updates:
        mirror.apply(update)
    return {key: item.value for key, item in mirror.items.items()}


async def test_a_watch_from_nothing_begins_with_everything(one: Coordinator) -> None:
    await one.txn([], [Put("z/1", b"a"), Put("z/2", b"b")])
    async with aclosing(one.watch("z/", 0)) as updates:
        first = await collect(updates, lambda seen: len(seen) == 1)
        assert isinstance(first[0], Resync)
        assert [item.key for item in first[0].snapshot.items] == ["z/1", "z/2"]
        revision = await put(one, "z/3")
        assert events_of(await collect(updates, at_least(1))) == [Event("z/3", b"v", revision, revision)]


async def test_two_watchers_of_one_prefix(one: Coordinator) -> None:
    start = (await one.read("")).revision + 1
    async with aclosing(one.watch("f/", start)) as first, aclosing(one.watch("f/", start)) as second:
        revision = await put(one, "f/a")
        expected = [Event("f/a", b"v", revision, revision)]
        assert events_of(await collect(first, at_least(1))) == expected
        assert events_of(await collect(second, at_least(1))) == expected
        later = await put(one, "f/b")
        async with aclosing(one.watch("f/", later)) as third:
            for updates in (first, second, third):
                assert [event.key for event in events_of(await collect(updates, at_least(1)))] == ["f/b"]


async def test_a_watch_behind_compaction_reads_everything_anew(one: Coordinator, backend: Backend) -> None:
    """R3, etcd rule 2."""
    start = (await one.read("c/")).revision
    await one.txn([], [Put("c/gone", b"")])
    for number in range(120):  # SQLite keeps 50 revisions in this suite
        last = await put(one, "c/k", str(number).encode())
    await one.txn([], [Delete("c/gone")])
    if backend.compact is not None:
        backend.compact(last)
    async with aclosing(one.watch("c/", start + 1)) as updates:
        found = await collect(updates, lambda seen: bool(seen))
        assert isinstance(found[0], Resync)
        assert [(item.key, item.value) for item in found[0].snapshot.items] == [("c/k", b"119")]
        await put(one, "c/k", b"after")
        assert [event.value for event in events_of(await collect(updates, at_least(1)))] == [b"after"]


async def test_a_closed_coordinator_ends_its_watches_and_refuses(backend: Backend) -> None:
    one = await backend.open()
    watching = asyncio.ensure_future(anext(one.watch("q/", (await one.read("")).revision + 1), None))
    await asyncio.sleep(0)
    await one.close()
    async with asyncio.timeout(PATIENCE_S):
        assert await watching is None
    with pytest.raises(CoordinatorUnavailable):
        await one.txn([], [Put("a", b"")])
    with pytest.raises(CoordinatorUnavailable):
        await one.get("a")


# Leases.


async def test_an_expired_lease_takes_its_keys_along(backend: Backend) -> None:
    watcher, holder = await backend.open(), await backend.open()
    start = (await watcher.read("l/")).revision
    lease = await holder.grant(backend.lease_ms)
    assert lease.id > 0 and lease.ttl_ms >= backend.lease_ms
    await holder.txn([], [Put("l/1", b"", lease.id), Put("l/2", b"", lease.id), Put("l/free", b"")])
    held = await watcher.get("l/1")
    assert held is not None and held.lease == lease.id
    async with aclosing(watcher.watch("l/", start + 1)) as updates:
        events = events_of(await collect(updates, at_least(5)))
    assert [(event.key, event.value) for event in events[3:]] == [("l/1", None), ("l/2", None)]
    assert [item.key for item in (await holder.read("l/")).items] == ["l/free"]
    assert await holder.keep_alive(lease.id) == 0  # etcd rule 3: 200 without a TTL is gone
    with pytest.raises(LeaseNotFound):
        await holder.txn([], [Put("l/late", b"", lease.id), Put("l/other", b"")])
    assert await holder.get("l/other") is None


async def test_a_renewed_lease_lives_on(backend: Backend) -> None:
    one = await backend.open()
    kept, dropped = await one.grant(backend.lease_ms), await one.grant(backend.lease_ms)
    start = await put(one, "k/kept", lease=kept.id)
    await put(one, "k/dropped", lease=dropped.id)
    renewals = 0
    async with aclosing(one.watch("k/", start + 2)) as updates:
        gone = asyncio.ensure_future(collect(updates, at_least(1)))
        while not gone.done():
            assert await one.keep_alive(kept.id) > 0
            renewals += 1
            await asyncio.wait([gone], timeout=backend.lease_ms / 4000)
        assert [event.key for event in events_of(await gone)] == ["k/dropped"]
    assert renewals > 2
    assert await one.get("k/kept") is not None
    await one.revoke(kept.id)


async def test_a_revoked_lease_is_gone_at_once(one: Coordinator) -> None:
    lease = await one.grant(60_000)
    await one.txn([], [Put("r/a", b"", lease.id), Put("r/b", b"", lease.id), Put("r/moved", b"", lease.id)])
    await put(one, "r/moved", b"mine now")  # a put without the lease detaches the key
    before = (await one.read("r/")).revision
    await one.revoke(lease.id)
    after = await one.read("r/")
    assert [item.key for item in after.items] == ["r/moved"]
    assert after.revision == before + 1
    assert await one.keep_alive(lease.id) == 0
    await one.revoke(lease.id)


async def test_a_lease_that_never_was(one: Coordinator) -> None:
    assert await one.keep_alive(4711) == 0
    await one.revoke(4711)
    with pytest.raises(LeaseNotFound):
        await one.txn([], [Put("x", b"", 4711)])
    # The lease matters only when the compares hold.
    assert not (await one.txn([Compare.value("x", b"?")], [Put("x", b"", 4711)])).succeeded
    with pytest.raises(ValueError):
        await one.grant(0)


# Everything at once, against the model.


@pytest.mark.parametrize("seed", range(3))
async def test_it_behaves_like_the_model(one: Coordinator, seed: int) -> None:
    """A random history gives the same answers, the same contents and the same events as RevisionedStore."""
    dice = random.Random(seed)
    model = RevisionedStore()
    offset = (await one.read("")).revision - model.revision
    start = offset + model.revision + 1
    keys = [f"{folder}/{name}" for folder in "abc" for name in "xyz"]
    for _ in range(40):
        compares, operations = _random_txn(dice, keys, model)
        shifted = [_shift(compare, offset) for compare in compares]
        expected = model.txn(compares, operations)
        result = await one.txn(shifted, operations)
        assert (result.succeeded, result.revision) == (expected.succeeded, expected.revision + offset)
    contents = await one.read("")
    wanted = model.read("")
    assert contents.revision == wanted.revision + offset
    assert contents.items == [
        item._replace(create_revision=item.create_revision + offset, mod_revision=item.mod_revision + offset)
        for item in wanted.items
    ]
    history = model.since("", 2)
    assert history is not None
    async with aclosing(one.watch("", start)) as updates:
        events = events_of(await collect(updates, at_least(len(history.events))))
    assert events == [
        event._replace(
            create_revision=event.create_revision + offset if event.value is not None else 0,
            mod_revision=event.mod_revision + offset,
        )
        for event in history.events
    ]


def _random_txn(
    dice: random.Random, keys: list[str], model: RevisionedStore
) -> tuple[list[Compare], list[Operation]]:
    compares = []
    for key in dice.sample(keys, dice.randrange(3)):
        held = model.get(key)
        truth = 0 if held is None else held.mod_revision
        compares.append(
            dice.choice(
                [
                    Compare.mod_revision(key, truth),
                    Compare.mod_revision(key, max(0, truth - dice.randrange(2))),
                    Compare.create_revision(key, 0 if held is None else held.create_revision),
                    Compare.value(key, b"1" if held is None else held.value),
                    Compare.lease(key, 0),
                ]
            )
        )
    operations: list[Operation] = []
    for key in dice.sample(keys, dice.randrange(1, 5)):
        if dice.random() < 0.7:
            operations.append(Put(key, str(dice.randrange(3)).encode()))
        else:
            operations.append(Delete(key))
    if dice.random() < 0.2:
        operations = [DeletePrefix(dice.choice(["a/", "b/", "c", ""]))]
    return compares, operations


def _shift(compare: Compare, offset: int) -> Compare:
    revisions = (CompareTarget.MOD_REVISION, CompareTarget.CREATE_REVISION)
    if compare.target in revisions and isinstance(compare.expected, int) and compare.expected:
        return compare._replace(expected=compare.expected + offset)
    return compare


async def test_a_resolving_writer_works_on_it(backend: Backend) -> None:
    one, other = await backend.open(), await backend.open()
    writer = ResolvingWriter(one, "writers/1", random.randbytes)
    first = await writer.txn([Compare.mod_revision("p", 0)], [Put("p", b"1")])
    assert first.succeeded
    assert not (await writer.txn([Compare.mod_revision("p", 0)], [Put("p", b"2")])).succeeded
    second = await writer.txn([Compare.mod_revision("p", first.revision)], [Put("p", b"3")])
    held = await other.get("p")
    assert second.succeeded and held is not None and held.value == b"3"
    # A new life of the same writer starts from where the key is.
    successor = ResolvingWriter(other, "writers/1", random.randbytes)
    assert (await successor.txn([], [Put("p", b"4")])).succeeded
    assert (await writer.txn([], [Put("p", b"5")])).succeeded
