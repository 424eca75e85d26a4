"""Decision 0050: large answers go from the segment file to the socket. A whole broker on a real disk and real sockets, on the
loop that `headrace serve` runs on; the client is a bare socket with a small buffer, so that answers stay on their way."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from raw_client import encode_request, fetch_request, produce_request

from headrace.broker.housekeeping import Housekeeping
from headrace.broker.os_files import OsFileSystem
from headrace.broker.partition import Partition
from headrace.broker.runtime import SystemRuntime
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.kafka.connection import Connection
from headrace.kafka.outlet import own_descriptor
from headrace.log.config import LogConfig
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.results import RollReason
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.records.batch import crc_matches, read_header, scan
from headrace.records.build import Record, build_batch
from headrace.replication.follower import TruncateTo
from headrace.testing.sim_transport import SimSocket
from headrace.wire.api import API, ApiKey
from headrace.wire.codec import decode, encode
from headrace.wire.framing import RequestHeader, decode_response_header
from headrace.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from headrace.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.wire.messages.metadata import MetadataRequest

TOPIC = "lent"
VERSION = 11
VALUE_BYTES = 500_000
BATCHES = 14
"""7 MB: more than all buffers between the broker and a client that does not read."""
EVERYTHING = BATCHES * (VALUE_BYTES + 1000)


class Client:
    def __init__(self, port: int, buffer_bytes: int = 65536) -> None:
        self._loop = asyncio.get_running_loop()
        self._port = port
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self._socket.setblocking(False)
        self.name = ("", 0)

    async def connect(self) -> Client:
        await self._loop.sock_connect(self._socket, ("127.0.0.1", self._port))
        self.name = self._socket.getsockname()
        return self

    async def send(self, key: int, version: int, request: object, correlation_id: int = 1) -> None:
        frame = encode_request(RequestHeader(key, version, correlation_id, "lent"), encode(request, version))
        await self._loop.sock_sendall(self._socket, frame)

    async def ask(self, offset: int = 0, max_bytes: int = EVERYTHING, correlation_id: int = 1) -> None:
        request = fetch_request([(TOPIC, 0, offset)], max_bytes=max_bytes)
        await self.send(ApiKey.FETCH, VERSION, request, correlation_id)

    async def read(self, size: int) -> bytes:
        parts = []
        while size:
            piece = await self._loop.sock_recv(self._socket, min(size, 1 << 18))
            if not piece:
                raise ConnectionResetError("closed")
            parts.append(piece)
            size -= len(piece)
        return b"".join(parts)

    async def frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.read(4))
        return await self.read(size)

    async def answer(self, key: int = ApiKey.FETCH, version: int = VERSION) -> tuple[int, Any]:
        frame = await self.frame()
        correlation_id, position = decode_response_header(frame, key, version)
        return correlation_id, decode(API[key].response, version, frame, position)

    async def fetched(self) -> Any:
        _, response = await self.answer()
        return response.topics[0].partitions[0]

    async def fetch(self, offset: int = 0, max_bytes: int = EVERYTHING) -> Any:
        await self.ask(offset, max_bytes)
        return await self.fetched()

    def say_no_more(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


class World:
    """A broker, and how often its answers went straight from a file."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._clients: list[Client] = []
        self.lent_bytes = 0
        send = os.sendfile

        def counted(out: int, source: int, position: int, count: int) -> int:
            sent = send(out, source, position, count)
            self.lent_bytes += sent
            return sent

        monkeypatch.setattr(os, "sendfile", counted)

    async def start(self) -> None:
        self._runtime = SystemRuntime(OsFileSystem(str(self._directory)))
        settings = Settings(
            kafka_port=0, http_port=0, data_dir=str(self._directory), offsets_partitions=1, console=False
        )
        self.node = Node(settings, self._runtime)
        await self.node.start()

    async def stop(self) -> None:
        for client in self._clients:
            client.close()
        await self.node.stop()
        await self._runtime.close()

    async def client(self, buffer_bytes: int = 65536) -> Client:
        client = await Client(self.node.kafka_port, buffer_bytes).connect()
        self._clients.append(client)
        return client

    async def create(self, **configs: str) -> None:
        rows = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        client = await self.client()
        await client.send(
            ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1, configs=rows)])
        )
        _, response = await client.answer(ApiKey.CREATE_TOPICS, 5)
        assert response.topics[0].error_code == 0

    async def produce(self, count: int = BATCHES, fill: int = 0, key: bytes = b"") -> None:
        client = await self.client()
        for number in range(count):
            value = bytes([(fill + number) % 251]) * VALUE_BYTES
            batch = build_batch([Record(key or b"%d" % number, value)], wall_ms=self._runtime.clock.wall_ms())
            await client.send(ApiKey.PRODUCE, 9, produce_request(TOPIC, bytearray(batch), acks=-1))
            _, response = await client.answer(ApiKey.PRODUCE, 9)
            assert response.topics[0].partitions[0].error_code == 0

    @property
    def partition(self) -> Partition:
        return self.node.broker.partitions[TOPIC, 0]

    @property
    def segments(self) -> list[Path]:
        return sorted(self._directory.rglob(f"*{TOPIC}*/**/*.log"))

    def bytes_of_log(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.segments)

    def connection_of(self, client: Client) -> Connection | None:
        for connection in self.node.doors.kafka.connections:
            assert connection.transport is not None
            if connection.transport.get_extra_info("peername") == client.name:
                return connection
        return None

    async def on_its_way(self, client: Client) -> Connection:
        """An answer has begun to leave, and waits for the client to read."""
        found: list[Connection] = []

        def is_sending() -> bool:
            connection = self.connection_of(client)
            found[:] = [connection] if connection is not None and connection.is_sending else []
            return bool(found)

        await until(is_sending)
        return found[0]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


Story = Callable[[World], Coroutine[Any, Any, None]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Story], None]:
    def run(story: Story) -> None:
        async def whole() -> None:
            world = World(tmp_path, monkeypatch)
            await world.start()
            try:
                await story(world)
            finally:
                await world.stop()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(whole())

    return run


def test_a_large_answer_is_what_lies_in_the_file_and_a_small_one_is_read(
    play: Callable[[Story], None],
) -> None:
    async def story(world: World) -> None:
        await world.create()
        await world.produce()
        expected = world.bytes_of_log()
        client = await world.client(1 << 20)
        before = world.partition.bytes_out
        row = await client.fetch()
        assert row.error_code == 0 and bytes(row.records) == expected
        assert world.lent_bytes == len(expected)
        assert world.partition.bytes_out - before == len(expected), "counted as if it had been read"
        # KIP-74 in both: at most what was asked for, but one batch in any case; never a part of one.
        row = await client.fetch(offset=3, max_bytes=3 * VALUE_BYTES)
        assert [header.base_offset for _, header in scan(row.records)] == [3, 4]
        row = await client.fetch(offset=5, max_bytes=VALUE_BYTES // 2)
        assert [header.base_offset for _, header in scan(row.records)] == [5]
        lent = world.lent_bytes
        row = await client.fetch(offset=6, max_bytes=1000)
        assert [header.base_offset for _, header in scan(row.records)] == [6]
        assert world.lent_bytes == lent, "little was asked for"

    play(story)


def test_nothing_above_the_high_watermark_is_lent(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        await world.create()
        await world.produce(6)
        world.partition.high_watermark = 4  # as if followers had fetched no more than this
        client = await world.client(1 << 20)
        row = await client.fetch()
        assert row.high_watermark == 4
        assert [header.base_offset for _, header in scan(row.records)] == [0, 1, 2, 3]
        assert world.lent_bytes == len(row.records)

    play(story)


async def _roll(world: World) -> None:
    world.partition.log.roll(RollReason.REQUESTED)
    await world.produce(1)


async def _delete_records(world: World) -> None:
    world.partition.delete_records(BATCHES)


async def _retention(world: World) -> None:
    """The segment is closed, too old, renamed and unlinked, all before the answer has left."""
    log, clock = world.partition.log, world.node.runtime.clock
    log.roll(RollReason.REQUESTED)
    await world.produce(1)
    log.delete_records(BATCHES)
    log.apply_retention(clock.wall_ms(), clock.now_ms(), world.partition.high_watermark)
    log.purge_deleted(clock.now_ms())
    log.purge_deleted(clock.now_ms() + 10**9)
    assert log.start_offset == BATCHES and len(world.segments) == 1


async def _compaction(world: World) -> None:
    clock = world.node.runtime.clock
    await world.produce(3, key=b"0")
    world.partition.log.roll(RollReason.REQUESTED)
    await world.produce(1, key=b"last")
    await until(lambda: world.partition.log.durable_end == world.partition.log.end_offset)
    before = world.partition.log.generation
    assert world.partition.log.compact(
        clock.wall_ms(), clock.now_ms(), world.partition.high_watermark, forced=True
    )
    assert world.partition.log.generation > before
    world.partition.log.purge_deleted(clock.now_ms())
    world.partition.log.purge_deleted(clock.now_ms() + 10**9)


async def _close(world: World) -> None:
    """As when the topic is deleted or the replica moves away."""
    log = world.partition.log
    await until(lambda: log.durable_end == log.end_offset)
    log.close()


@pytest.mark.parametrize("event", [_roll, _delete_records, _retention, _compaction, _close])
def test_what_is_on_its_way_is_not_touched_by(
    event: Callable[[World], Awaitable[None]], play: Callable[[Story], None]
) -> None:
    async def story(world: World) -> None:
        await world.create(**({"cleanup_policy": "compact"} if event is _compaction else {}))
        await world.produce()
        expected = world.bytes_of_log()
        client = await world.client()
        await client.ask()
        await world.on_its_way(client)
        await event(world)
        row = await client.fetched()
        assert bytes(row.records) == expected
        assert world.lent_bytes == len(expected)

    play(story)


def test_a_cut_behind_what_is_on_its_way_leaves_it_alone(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        await world.create()
        await world.produce()
        expected = world.bytes_of_log()
        client = await world.client()
        await client.ask(max_bytes=(BATCHES - 2) * (VALUE_BYTES + 100))
        await world.on_its_way(client)
        world.partition.following._carry_out(TruncateTo(BATCHES - 1))
        assert world.partition.log.end_offset == BATCHES - 1
        row = await client.fetched()
        assert bytes(row.records) == expected[: len(row.records)]
        assert [header.base_offset for _, header in scan(row.records)] == list(range(BATCHES - 2))

    play(story)


def test_a_cut_into_what_is_on_its_way_leaves_it_alone_too(play: Callable[[Story], None]) -> None:
    """After an unclean election the tail of a segment is cut, and other batches take its place: where the header of an answer
    has left, what it promised follows, whatever the log holds by now."""

    async def story(world: World) -> None:
        await world.create()
        await world.produce()
        expected = world.bytes_of_log()
        client = await world.client()
        await client.ask()
        await world.on_its_way(client)
        log = world.partition.log
        world.partition.following._carry_out(TruncateTo(2))
        assert log.end_offset == 2
        for _ in range(5):
            batch = memoryview(bytearray(build_batch([Record(b"k", b"other" * 100_000)], wall_ms=1)))
            assert not isinstance(log.append(batch, read_header(batch), log.epochs.latest, 1), Rejected)
        assert bytes((await client.fetched()).records) == expected
        now = world.bytes_of_log()
        assert bytes(log.read(0, EVERYTHING, 7)) == now  # type: ignore[arg-type]
        assert now != expected[: len(now)]

    play(story)


def test_answers_to_pipelined_requests_stay_in_order(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        await world.create()
        await world.produce()
        expected = world.bytes_of_log()
        client = await world.client()
        await client.ask(correlation_id=1)
        await client.send(ApiKey.METADATA, 4, MetadataRequest(None), 2)
        await client.ask(correlation_id=3, max_bytes=1000)
        await client.ask(correlation_id=4)
        await client.send(ApiKey.METADATA, 4, MetadataRequest(None), 5)
        await world.on_its_way(client)
        sizes = {}
        for wanted, key, version in (
            (1, ApiKey.FETCH, VERSION),
            (2, ApiKey.METADATA, 4),
            (3, ApiKey.FETCH, VERSION),
            (4, ApiKey.FETCH, VERSION),
            (5, ApiKey.METADATA, 4),
        ):
            correlation_id, response = await client.answer(key, version)
            assert correlation_id == wanted
            if key == ApiKey.FETCH:
                records = bytes(response.topics[0].partitions[0].records)
                assert expected.startswith(records)
                sizes[wanted] = len(records)
        assert sizes[1] == sizes[4] == len(expected) > sizes[3] > 0

    play(story)


def test_a_slow_reader_gets_all_of_it_and_keeps_nobody_waiting(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        await world.create()
        await world.produce()
        expected = world.bytes_of_log()
        slow, quick = await world.client(4096), await world.client(1 << 20)
        await slow.ask()
        connection = await world.on_its_way(slow)
        for _ in range(3):
            assert bytes((await quick.fetch()).records) == expected
        assert connection.is_sending
        now_ms = world.node.runtime.clock.now_ms()
        assert connection.stale(now_ms) is None
        assert connection.stale(now_ms + 3_600_000) == "it does not read its responses", "X13"
        assert bytes((await slow.fetched()).records) == expected
        assert connection.stale(now_ms) is None

    play(story)


def test_a_client_that_goes_away_leaves_nothing_open(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        await world.create()
        await world.produce()
        before = len(os.listdir("/proc/self/fd"))
        client = await world.client()
        await client.ask()
        await world.on_its_way(client)
        client.close()
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before)

    play(story)


def test_who_says_no_more_still_gets_its_answer(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        await world.create()
        await world.produce()
        expected = world.bytes_of_log()
        client = await world.client()
        await client.ask()
        await world.on_its_way(client)
        client.say_no_more()
        assert bytes((await client.fetched()).records) == expected
        with pytest.raises(ConnectionError):
            await client.read(1)

    play(story)


def test_bytes_that_are_lent_count_against_the_quota(play: Callable[[Story], None]) -> None:
    """KIP-219: the answer leaves at once and says how long the client is not heard."""

    async def story(world: World) -> None:
        await world.create()
        await world.produce()
        client = await world.client(1 << 20)
        entity = [EntityData("client-id", "lent")]
        change = EntryData(entity, [OpData("consumer_byte_rate", 1_000_000.0, False)])
        await client.send(ApiKey.ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest([change], False))
        _, response = await client.answer(ApiKey.ALTER_CLIENT_QUOTAS, 1)
        assert response.entries[0].error_code == 0
        await until(lambda: world.node.services.quotas.active)
        await client.ask()
        _, response = await client.answer()
        assert world.lent_bytes == len(response.topics[0].partitions[0].records)
        assert response.throttle_time_ms > 0

    play(story)


class Transport(asyncio.Transport):
    def __init__(self, **extra: object) -> None:
        super().__init__(extra)


def test_only_plain_sockets_of_the_system_are_given_files() -> None:
    with socket.socket() as plain:
        assert own_descriptor(Transport(socket=plain)) == plain.fileno()
        assert own_descriptor(Transport(socket=plain, sslcontext=object())) == -1, (
            "what is encrypted passes through us"
        )
    assert own_descriptor(Transport()) == -1
    assert own_descriptor(Transport(socket=SimSocket(("a", 1)))) == -1, "nor those of a simulation"


def _flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


def test_s1_the_first_read_after_a_start_finds_a_flipped_bit(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        await world.create()
        await world.produce()
        await world.stop()
        await world.start()
        expected = world.bytes_of_log()
        client = await world.client(1 << 20)
        for turn in range(2):
            row = await client.fetch(max_bytes=5 * (VALUE_BYTES + 100))
            assert bytes(row.records) == expected[: len(row.records)]
            assert (world.lent_bytes > 0) == (turn > 0), "lent from the second time on"
        _flip(world.segments[0], 10 * VALUE_BYTES)
        row = await client.fetch()
        assert row.error_code == ErrorKind.KAFKA_STORAGE_ERROR.kafka_code, (
            "not all of it has been read before"
        )
        assert world.partition.failed

    play(story)


def test_s1_a_bit_that_flips_later_is_found_by_whoever_opens_the_batch(play: Callable[[Story], None]) -> None:
    """By the client, by a follower before it appends, by readers inside the broker, and by the scrub, which takes the replica
    out of service."""

    async def story(world: World) -> None:
        await world.create()
        await world.produce()
        _flip(world.segments[0], 10 * VALUE_BYTES)
        client = await world.client(1 << 20)
        row = await client.fetch()
        assert world.lent_bytes == len(row.records)
        sound = [crc_matches(row.records, at, header) for at, header in scan(row.records)]
        assert sound.count(False) == 1, "the client's own CRC tells"

        follower, _ = PartitionLog.open(
            MemoryFileSystem(), "/follower", LogConfig(), topic_id=b"t" * 16, wall_ms=0
        )
        taken = follower.append_replicated(bytes(row.records), 0)
        assert isinstance(taken, Rejected) and taken.kind is ErrorKind.CORRUPT_MESSAGE
        assert follower.end_offset == 0

        found = world.partition.log.read(0, VALUE_BYTES, BATCHES)
        assert not isinstance(found, Rejected) and found, "what is whole can still be read"
        housekeeping = world.node.health.housekeeping
        assert isinstance(housekeeping, Housekeeping)
        while not world.partition.failed and world.partition.scrubbed_to < BATCHES:
            housekeeping._scrub(world.partition, world.node.runtime.clock.now_ms())
        assert world.partition.failed
        assert (await client.fetch()).error_code == ErrorKind.KAFKA_STORAGE_ERROR.kafka_code

    play(story)


def test_s1_a_reader_inside_the_broker_takes_a_replica_with_a_flipped_bit_out_of_service(
    play: Callable[[Story], None],
) -> None:
    async def story(world: World) -> None:
        await world.create()
        await world.produce()
        _flip(world.segments[0], 10 * VALUE_BYTES)
        read = world.partition.read(0, EVERYTHING, BATCHES)
        assert isinstance(read, Rejected) and read.kind is ErrorKind.KAFKA_STORAGE_ERROR
        assert world.partition.failed

    play(story)
