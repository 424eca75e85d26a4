"""etcd under failure: each of the nine rules in specs/dependencies.md, against real etcd processes."""

from __future__ import annotations

import asyncio
import base64
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trustme
from mirror import Mirror
from off_loop import in_a_thread

from headrace.coordinator.etcd import EtcdCoordinator, EtcdSettings
from headrace.coordinator.etcd_calls import Credentials
from headrace.coordinator.etcd_watch import PrefixFeed, WatchSettings, _HistoryLost
from headrace.coordinator.history import EventHistory
from headrace.coordinator.opening import open_coordinator
from headrace.coordinator.port import (
    MAX_TXN_OPERATIONS,
    RESERVED_LEAF,
    Compare,
    Coordinator,
    CoordinatorError,
    CoordinatorRefused,
    CoordinatorUnavailable,
    Event,
    Operation,
    OutcomeUnknown,
    Put,
    Resync,
    TxnResult,
    WatchBatch,
    WatchUpdate,
)
from headrace.coordinator.resolve import ResolvingWriter
from headrace.net.h1_client import Origin
from headrace.testing.etcd_server import EtcdCluster, EtcdServer, ServerTls, etcd_binary
from headrace.testing.tcp_proxy import TcpProxy

pytestmark = pytest.mark.skipif(
    etcd_binary() is None, reason="etcd is not installed (Debian: apt install etcd-server)"
)

PATIENCE_S = 120.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    made = EtcdServer(tmp_path / "etcd").start()
    yield made
    made.stop()


@pytest.fixture
async def proxy(server: EtcdServer) -> AsyncIterator[TcpProxy]:
    made = await TcpProxy(server.host, server.port).start()
    yield made
    await made.stop()


def origins(address: str, tls: ssl.SSLContext | None = None) -> tuple[Origin, ...]:
    return tuple(
        Origin(host, int(port), tls) for host, port in (one.split(":") for one in address.split(","))
    )


@asynccontextmanager
async def connected(address: str, **changes: object) -> AsyncIterator[EtcdCoordinator]:
    settings = EtcdSettings(origins(address), **changes)  # type: ignore[arg-type]
    coordinator = EtcdCoordinator(settings, token_bytes=random.randbytes)
    try:
        yield coordinator
    finally:
        await coordinator.close()


async def fill(coordinator: Coordinator, prefix: str, revisions: int) -> None:
    """As many revisions, several requests at a time."""
    numbers = iter(range(revisions))

    async def write() -> None:
        for number in numbers:
            await coordinator.txn([], [Put(f"{prefix}{number:05d}", b"x" * 40)])

    await asyncio.gather(*(write() for _ in range(16)))


class Watching:
    """A watcher in the background; what it has seen."""

    def __init__(self, coordinator: Coordinator, prefix: str, from_revision: int) -> None:
        self.updates: list[WatchUpdate] = []
        self.mirror = Mirror()
        self._news = asyncio.Event()
        self._task = asyncio.ensure_future(self._run(coordinator, prefix, from_revision))

    async def _run(self, coordinator: Coordinator, prefix: str, from_revision: int) -> None:
        async with aclosing(coordinator.watch(prefix, from_revision)) as updates:
            async for update in updates:
                self.updates.append(update)
                self.mirror.apply(update)
                self._news.set()

    @property
    def events(self) -> list[Event]:
        return [event for one in self.updates if isinstance(one, WatchBatch) for event in one.events]

    @property
    def resyncs(self) -> list[Resync]:
        return [update for update in self.updates if isinstance(update, Resync)]

    async def until(self, condition: object) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # type: ignore[operator]
                self._news.clear()
                news = asyncio.ensure_future(self._news.wait())
                await asyncio.wait([news, self._task], return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                if self._task.done():
                    self._task.result()
                    raise AssertionError("the watch ended")

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def shows_the_same(watching: Watching, coordinator: Coordinator, prefix: str) -> None:
    """The repeat of a write that nobody answered may be applied late, so a read may be ahead of the watch and behind it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            read = {item.key: item for item in (await coordinator.read(prefix)).items}
            newest = max(item.mod_revision for item in read.values())
            await watching.until(
                lambda newest=newest: (
                    max(item.mod_revision for item in watching.mirror.items.values()) >= newest
                )
            )
            if read == watching.mirror.items:
                return


async def write_until_acknowledged(coordinator: Coordinator, key: str, value: bytes) -> None:
    """Through an outage. Idempotent, so that a repeat does no harm."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await coordinator.txn([], [Put(key, value)])
                return
            except CoordinatorError:
                await asyncio.sleep(0.05)


async def eventually(look: Callable[[], Awaitable[object]]) -> None:
    for _ in range(int(PATIENCE_S / 0.02)):
        if await look():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come true")


@pytest.mark.slow
async def test_rule_1_a_cut_during_catch_up_loses_none_of_6000_events(
    server: EtcdServer, proxy: TcpProxy
) -> None:
    """While a watcher catches up, headers carry the store's revision; resuming behind that lost 4,000 elsewhere."""
    async with connected(server.address) as writer, connected(proxy.address) as reader:
        start = (await writer.read("")).revision
        await fill(writer, "w/", 6_000)
        # A thousand events take about 200 kB, all of them over a megabyte; every connection dies on the way.
        proxy.cut_after_bytes = 250_000
        watching = Watching(reader, "w/", start + 1)
        await watching.until(lambda: len(watching.events) >= 6_000)
        await watching.stop()
        assert proxy.cuts >= 3
        assert not watching.resyncs
        revisions = [event.mod_revision for event in watching.events]
        assert revisions == list(range(start + 1, start + 6_001))
        assert {event.key for event in watching.events} == {f"w/{number:05d}" for number in range(6_000)}


async def test_rule_2_compaction_during_a_disconnect_gives_a_resync(
    server: EtcdServer, proxy: TcpProxy
) -> None:
    async with connected(server.address) as writer, connected(proxy.address) as reader:
        await writer.txn([], [Put("w/stays", b"1"), Put("w/goes", b"1")])
        watching = Watching(reader, "w/", 0)
        await watching.until(lambda: "w/goes" in watching.mirror.items)
        proxy.refusing = True
        await proxy.cut()
        for number in range(20):
            await writer.txn([], [Put("w/stays", str(number).encode())])
        last = (await writer.txn([], [Put("w/new", b"1")])).revision
        await writer.txn([], [Put("w/goes", b"2")])
        await writer.txn([Compare.value("w/goes", b"2")], [Put("w/new", b"2")])
        server.compact(last)
        proxy.refusing = False
        await watching.until(
            lambda: (
                {key: item.value for key, item in watching.mirror.items.items()}
                == {"w/stays": b"19", "w/goes": b"2", "w/new": b"2"}
            )
        )
        assert len(watching.resyncs) == 2
        await writer.txn([], [Put("w/after", b"")])
        await watching.until(lambda: "w/after" in watching.mirror.items)
        assert len(watching.resyncs) == 2
        await watching.stop()


@pytest.mark.slow
async def test_rule_4_and_5_a_paused_etcd_hangs_and_the_outcome_is_found_out(server: EtcdServer) -> None:
    """SIGSTOP: TCP still connects, requests hang. Every call ends at its deadline; the watch misses nothing."""
    async with connected(server.address, deadline_s=0.6) as one:
        writer = ResolvingWriter(one, "writers/1", random.randbytes)
        assert (await writer.txn([], [Put("w/0", b"")])).succeeded
        start = (await one.read("")).revision
        watching = Watching(one, "w/", start + 1)
        lease = await one.grant(20_000)
        await one.txn([], [Put("w/leased", b"", lease.id)])
        server.pause()
        with pytest.raises(OutcomeUnknown):
            await one.txn([], [Put("w/maybe", b"")])
        with pytest.raises(CoordinatorUnavailable):
            await one.get("w/0")
        with pytest.raises(CoordinatorUnavailable):
            await one.keep_alive(lease.id)
        with pytest.raises(OutcomeUnknown):
            await writer.txn([Compare.mod_revision("w/1", 0)], [Put("w/1", b"")])
        # The next one may not overtake the one in doubt: it is refused while that cannot be settled.
        with pytest.raises(CoordinatorUnavailable, match="in doubt"):
            await writer.txn([], [Put("w/2", b"")])
        server.resume()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    outcome = await writer.resolve()
                    break
                except OutcomeUnknown:
                    await asyncio.sleep(0.05)
        assert outcome is not None
        assert outcome.succeeded is (await one.get("w/1") is not None)
        await write_until_acknowledged(one, "w/end", b"")
        await watching.until(lambda: "w/end" in watching.mirror.items)
        assert await one.keep_alive(lease.id) > 0
        snapshot = await one.read("w/")
        assert {item.key: item for item in snapshot.items if item.key != "w/0"} == watching.mirror.items
        await watching.stop()


async def test_rule_4_an_unknown_transaction_that_lands_late_is_fenced(
    server: EtcdServer, proxy: TcpProxy
) -> None:
    """The request waits in the network; the writer looks, fences, and the late arrival changes nothing."""
    async with connected(server.address) as direct, connected(proxy.address, deadline_s=0.4) as slow:
        flaky = Detour(slow, direct)
        writer = ResolvingWriter(flaky, "writers/1", random.randbytes)  # type: ignore[arg-type]
        await writer.txn([], [Put("p", b"0")])
        proxy.linger_s = PATIENCE_S
        proxy.black_hole()
        flaky.through_proxy = True
        outcome = await writer.txn([], [Put("p", b"late")])
        assert not outcome.succeeded
        with pytest.raises(OutcomeUnknown):  # the same without a fence, to see that such requests do land
            await slow.txn([], [Put("unfenced", b"late")])
        assert await direct.get("unfenced") is None
        proxy.flow()
        await eventually(lambda: direct.get("unfenced"))
        for _ in range(20):
            held = await direct.get("p")
            assert held is not None and held.value == b"0"


class Detour:
    """The first transaction after `through_proxy` goes by the slow way, everything else directly."""

    def __init__(self, slow: Coordinator, direct: Coordinator) -> None:
        self._slow, self._direct = slow, direct
        self.through_proxy = False
        self.get = direct.get

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        if self.through_proxy:
            self.through_proxy = False
            return await self._slow.txn(compares, operations)
        return await self._direct.txn(compares, operations)


@pytest.mark.slow
async def test_kill_9_and_restart_mid_watch_misses_nothing(server: EtcdServer) -> None:
    async with connected(server.address, deadline_s=1.0) as one:
        start = (await one.read("")).revision
        lease = await one.grant(20_000)
        watching = Watching(one, "k/", start + 1)
        acknowledged = []
        stop = asyncio.Event()

        async def write() -> None:
            number = 0
            while not stop.is_set():
                await write_until_acknowledged(one, f"k/{number:04d}", b"")
                acknowledged.append(f"k/{number:04d}")
                number += 1
                await asyncio.sleep(0.005)

        async with asyncio.TaskGroup() as running:
            running.create_task(write())
            await watching.until(lambda: len(watching.mirror.items) > 20)
            server.kill()
            await asyncio.sleep(0.5)
            before = len(acknowledged)
            await in_a_thread(server.start)
            await watching.until(lambda: len(watching.mirror.items) > before + 20)
            stop.set()
        await watching.until(lambda: set(acknowledged) <= watching.mirror.items.keys())
        assert not watching.resyncs
        await shows_the_same(watching, one, "k/")
        revisions = [event.mod_revision for event in watching.events]
        assert revisions == sorted(set(revisions))
        assert await one.keep_alive(lease.id) > 0  # leases survive a restart
        await watching.stop()


async def test_rule_6_a_half_open_watch_is_noticed_by_the_heartbeat(
    server: EtcdServer, proxy: TcpProxy
) -> None:
    """The connection stays open and carries nothing; only the watch goes through the proxy's black hole."""
    settings = WatchSettings(silence_s=0.2, echo_s=0.3)
    async with (
        connected(server.address) as writer,
        connected(proxy.address, watch=settings, deadline_s=0.5) as reader,
    ):
        watching = Watching(reader, "w/", 0)
        await watching.until(lambda: watching.resyncs)
        await eventually(lambda: heartbeat_written(server, "w/"))
        assert all(event.key != f"w/{RESERVED_LEAF}" for event in watching.events)
        assert (await reader.read("")).items == []  # the heartbeat is nobody's business
        connections = proxy.connections
        proxy.hang_existing()
        await writer.txn([], [Put("w/missed", b"")])
        await watching.until(lambda: "w/missed" in watching.mirror.items)
        assert proxy.connections > connections
        await watching.stop()


async def heartbeat_written(server: EtcdServer, prefix: str) -> bool:
    key = base64.b64encode(f"/headrace/{prefix}{RESERVED_LEAF}".encode()).decode()
    return "kvs" in await in_a_thread(lambda: server.call("/v3/kv/range", {"key": key}))


@pytest.mark.slow
async def test_a_leader_killed_in_a_cluster_of_three(tmp_path: Path) -> None:
    cluster = await in_a_thread(EtcdCluster(tmp_path).start)
    try:
        async with connected(cluster.address, deadline_s=1.0) as one:
            start = (await one.read("")).revision
            watching = Watching(one, "c/", start + 1)
            for number in range(30):
                await one.txn([], [Put(f"c/{number}", b"")])
            leader = await in_a_thread(cluster.leader)
            leader.kill()
            for number in range(30, 60):
                await write_until_acknowledged(one, f"c/{number}", b"")
            await watching.until(lambda: len(watching.mirror.items) == 60)
            assert not watching.resyncs
            # A member that hangs instead of dying.
            survivor = next(member for member in cluster.members if member is not leader)
            await in_a_thread(leader.start)
            survivor.pause()
            for number in range(60, 80):
                await write_until_acknowledged(one, f"c/{number}", b"")
            survivor.resume()
            await watching.until(lambda: len(watching.mirror.items) == 80)
            await shows_the_same(watching, one, "c/")
            await watching.stop()
    finally:
        await in_a_thread(cluster.stop)


@pytest.mark.slow
async def test_without_a_quorum_nothing_is_pretended(tmp_path: Path) -> None:
    """R36: reads and writes fail within their deadlines, the watch is silent, and all comes back."""
    cluster = await in_a_thread(EtcdCluster(tmp_path).start)
    try:
        async with connected(cluster.address, deadline_s=1.0) as one:
            await one.txn([], [Put("q/a", b"")])
            watching = Watching(one, "q/", 0)
            await watching.until(lambda: "q/a" in watching.mirror.items)
            for member in cluster.members[:2]:
                member.kill()
            with pytest.raises(CoordinatorUnavailable):
                await one.get("q/a")
            with pytest.raises(CoordinatorError):
                await one.txn([], [Put("q/b", b"")])
            await in_a_thread(cluster.members[0].start)
            await write_until_acknowledged(one, "q/c", b"")
            await watching.until(lambda: "q/c" in watching.mirror.items)
            await watching.stop()
    finally:
        await in_a_thread(cluster.stop)


async def test_an_absent_etcd_is_unavailable_not_unknown() -> None:
    """Nothing was sent, so nothing happened; and opening is no error (R36)."""
    async with connected("127.0.0.1:9", deadline_s=0.3) as one:
        with pytest.raises(CoordinatorUnavailable):
            await one.txn([], [Put("a", b"")])
        with pytest.raises(CoordinatorUnavailable):
            await one.read("")
        with pytest.raises(CoordinatorUnavailable):
            await one.grant(5_000)


def _drawn(first: int, size: int) -> bytes:
    return bytes([first]) * size


async def test_a_dead_endpoint_is_passed_over(server: EtcdServer) -> None:
    for first in range(3):
        settings = EtcdSettings(origins(f"127.0.0.1:9,{server.address},127.0.0.1:10"))
        one = EtcdCoordinator(settings, token_bytes=partial(_drawn, first))
        assert (await one.txn([], [Put("a", b"")])).succeeded
        await one.close()


@pytest.mark.slow
async def test_rule_8_password_and_a_token_that_runs_out(tmp_path: Path) -> None:
    server = EtcdServer(tmp_path / "etcd", flags=("--auth-token-ttl", "1")).start()
    try:
        server.enable_auth("headrace", "s3cret")
        async with connected(server.address) as nobody:
            with pytest.raises(CoordinatorRefused):
                await nobody.get("a")
        async with connected(server.address, credentials=Credentials("headrace", "wrong")) as stranger:
            with pytest.raises(CoordinatorRefused):
                await stranger.txn([], [Put("a", b"")])
        assert "s3cret" not in repr(Credentials("headrace", "s3cret"))
        secret = tmp_path / "secret"
        secret.write_text("s3cret\n")
        secret.chmod(0o600)
        url = f"etcd://{server.address}/auth?user=headrace&password_file={secret}"
        one = await open_coordinator(url, clock=None, run_blocking=in_a_thread)  # type: ignore[arg-type]
        watching = Watching(one, "", 0)
        assert (await one.txn([], [Put("a", b"")])).succeeded
        await watching.until(lambda: "a" in watching.mirror.items)
        await in_a_thread(server.kill)  # the token lives in the server's memory
        await in_a_thread(lambda: server.start(wait=False))
        await write_until_acknowledged(one, "b", b"")
        await watching.until(lambda: "b" in watching.mirror.items)
        async with connected(server.address, credentials=Credentials("headrace", "s3cret")) as idle:
            await idle.txn([], [Put("idle", b"")])
            await asyncio.sleep(2.5)  # longer than the token lives
            assert (await idle.txn([], [Put("idle", b"")])).succeeded
        await write_until_acknowledged(one, "later", b"")
        await watching.until(lambda: "later" in watching.mirror.items)
        await watching.stop()
        await one.close()
    finally:
        server.stop()


async def test_tls_with_our_own_authority(tmp_path: Path) -> None:
    """Mutual TLS for transport; a stranger's certificate, or none, is not talked to (X27)."""
    authority, stranger = trustme.CA(), trustme.CA()
    files = {}
    for name, ca, subject in (("server", authority, "127.0.0.1"), ("client", authority, "broker-1")):
        # The gateway dials back into the server with the server's own certificate, so it must serve as a client's too.
        issued = ca.issue_cert(subject)
        issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / f"{name}.pem"))
        files[name] = str(tmp_path / f"{name}.pem")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    stranger.cert_pem.write_to_path(str(tmp_path / "stranger.pem"))
    ca_file = str(tmp_path / "ca.pem")
    probe = ssl.create_default_context(cafile=ca_file)
    probe.load_cert_chain(files["client"])
    server = EtcdServer(
        tmp_path / "etcd", tls=ServerTls(files["server"], files["server"], client_ca=ca_file, probe=probe)
    ).start()
    try:

        async def try_with(**parameters: str) -> None:
            query = "&".join(f"{name}={value}" for name, value in parameters.items())
            url = f"etcds://{server.address}/tls?{query}&deadline_ms=1000"
            one = await open_coordinator(url, clock=None, run_blocking=in_a_thread)  # type: ignore[arg-type]
            try:
                await one.txn([], [Put("a", b"1")])
                watching = Watching(one, "", 0)
                await watching.until(lambda: "a" in watching.mirror.items)
                await watching.stop()
            finally:
                await one.close()

        await try_with(ca=ca_file, cert=files["client"])
        with pytest.raises(CoordinatorError):
            await try_with(ca=ca_file)
        with pytest.raises(CoordinatorUnavailable):
            await try_with(ca=str(tmp_path / "stranger.pem"), cert=files["client"])
    finally:
        server.stop()


async def test_rule_9_one_connection_for_all_watchers_of_a_prefix(
    server: EtcdServer, proxy: TcpProxy
) -> None:
    async with connected(proxy.address) as one:
        start = (await one.read("")).revision + 1
        before = proxy.connections
        watchers = [Watching(one, "p/", start) for _ in range(5)]
        await one.txn([], [Put("p/a", b"")])
        for watching in watchers:
            await watching.until(lambda watching=watching: "p/a" in watching.mirror.items)
        assert proxy.connections - before <= 2  # the stream, and perhaps one more for calls
        for watching in watchers:
            await watching.stop()
        # The last one to leave closes it; the next one opens it again and misses nothing.
        again = Watching(one, "p/", start)
        await again.until(lambda: len(again.events) == 1)
        await again.stop()


async def test_r3_everything_is_read_anew_from_time_to_time(server: EtcdServer) -> None:
    async with connected(server.address, reread_s=0.1) as one:
        await one.txn([], [Put("w/a", b"")])
        watching = Watching(one, "w/", 0)
        await watching.until(lambda: len(watching.resyncs) >= 3)
        await one.txn([], [Put("w/b", b"")])
        await watching.until(lambda: "w/b" in watching.mirror.items)
        await watching.stop()


async def test_x27_hostile_keys_and_values_in_etcd(server: EtcdServer) -> None:
    """Keys that are not text, or nobody of ours wrote, are left out; values are bytes and stay so."""
    async with connected(server.address) as one:
        start = (await one.read("")).revision
        watching = Watching(one, "", start + 1)
        for raw in (
            b"/headrace/\xff\xfe",
            b"/headrace/a\nb",
            b"/headrace/",
            b"/headracist/x",
            b"/headrace/\xed\xa0\x80",
        ):
            put = {"key": base64.b64encode(raw).decode(), "value": base64.b64encode(b"!").decode()}
            server.call("/v3/kv/put", put)
        await one.txn([], [Put("good", b"\xff\x00")])
        await watching.until(lambda: "good" in watching.mirror.items)
        assert [event.key for event in watching.events] == ["good"]
        snapshot = await one.read("")
        assert [(item.key, item.value) for item in snapshot.items] == [("good", b"\xff\x00")]
        await watching.stop()


async def test_a_page_boundary_among_foreign_keys(server: EtcdServer) -> None:
    async with connected(server.address) as one:
        for start in range(0, 999, 111):
            await one.txn([], [Put(f"k/{number:04d}", b"") for number in range(start, start + 111)])
        for raw in (b"/headrace/k/0998\xff", b"/headrace/k/0998\xff\xff"):  # the thousandth and the next
            server.call("/v3/kv/put", {"key": base64.b64encode(raw).decode(), "value": ""})
        await one.txn([], [Put("k/last", b"")])
        assert len((await one.read("k/")).items) == 1_000
        assert MAX_TXN_OPERATIONS >= 111


async def test_a_restored_backup_is_noticed(tmp_path: Path) -> None:
    """The revision went back: no event can ever arrive at our position, so everything is read anew."""
    settings = WatchSettings(silence_s=0.2, echo_s=0.3)
    server = EtcdServer(tmp_path / "one").start()
    async with connected(server.address, watch=settings, deadline_s=0.5) as one:
        for number in range(50):
            await one.txn([], [Put("w/a", str(number).encode())])
        watching = Watching(one, "w/", 0)
        await watching.until(lambda: "w/a" in watching.mirror.items)
        server.kill()
        replacement = EtcdServer(tmp_path / "two", client_port=server.port)
        await in_a_thread(replacement.start)
        try:
            await write_until_acknowledged(one, "w/b", b"")
            await watching.until(lambda: watching.mirror.items.keys() == {"w/b"})
            assert [one.restored for one in watching.resyncs][:2] == [False, True]
            await watching.stop()
        finally:
            replacement.stop()


async def test_f17_a_watch_outlives_what_nobody_foresaw(
    server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feed of a prefix that ended by an exception would leave its watchers waiting for ever."""
    usual, raised = PrefixFeed._take, asyncio.Event()

    def broken(self: PrefixFeed, reply: object) -> None:
        if getattr(reply, "events", None) and not raised.is_set():
            raised.set()
            raise KeyError("a bug, or a newer etcd")
        usual(self, reply)  # type: ignore[arg-type]

    monkeypatch.setattr(PrefixFeed, "_take", broken)
    async with connected(server.address) as one:
        watching = Watching(one, "k/", (await one.read("")).revision + 1)
        await one.txn([], [Put("k/1", b"")])
        await watching.until(lambda: "k/1" in watching.mirror.items)
        assert raised.is_set()
        await watching.stop()


async def test_f17_nor_does_what_nobody_foresaw_end_it_while_its_history_is_lost(
    server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, restart, raised = PrefixFeed._take, EventHistory.restart, list[str]()

    def losing(self: PrefixFeed, reply: object) -> None:
        if getattr(reply, "events", None) and not raised:
            raised.append("lost")
            raise _HistoryLost("compacted")
        usual(self, reply)  # type: ignore[arg-type]

    def broken(self: EventHistory, latest: int) -> None:
        if raised == ["lost"]:
            raised.append("raised")
            raise KeyError("a bug, or a newer etcd")
        restart(self, latest)

    monkeypatch.setattr(PrefixFeed, "_take", losing)
    monkeypatch.setattr(EventHistory, "restart", broken)
    async with connected(server.address) as one:
        watching = Watching(one, "k/", (await one.read("")).revision + 1)
        await one.txn([], [Put("k/1", b"")])
        await watching.until(lambda: "k/1" in watching.mirror.items)
        assert raised == ["lost", "raised"]
        assert one._feed_tasks, "the feed lives: nobody had to find out by its silence"
        await watching.stop()
