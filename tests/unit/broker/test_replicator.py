"""Pulling from a leader that is played by the test, frame by frame, into real logs on a simulated disk (R11, R20; F17, F23)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from replica_bench import EPOCH, TOPIC_ID, Bench, on_a_machine, sent

from headrace.broker import replicator
from headrace.broker.following import FIRST_PAUSE_MS
from headrace.broker.peer import PeerLost, PeerRefused
from headrace.broker.replicator import FETCH_BYTES, MAX_WAIT_MS, PARTITION_BYTES, VERSION, Replicator
from headrace.cluster.configs import TopicConfig
from headrace.core.errors import ErrorKind
from headrace.log.config import LogConfig
from headrace.wire.api import ApiKey
from headrace.wire.fetch import FetchPartition, FetchRequest, decode_fetch_request
from headrace.wire.fetch_response import (
    EpochEndOffset,
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    encode_fetch_response,
)

ME, EPOCH_OF_MINE, LEADER = 1, 11, 2
Rows = list[FetchPartitionResponse]
NOTHING = FetchPartitionResponse(0, 0, 0, 0, 0)


def whole(response: FetchResponse, version: int) -> bytes:
    """Nothing here lies in a file."""
    pieces: list[Any] = encode_fetch_response(response, version)
    return b"".join(pieces)


class LeaderConnection:
    """One connection to the leader: what is asked over it, and what it answers."""

    def __init__(self, answer: Callable[[FetchRequest], Rows | Exception | int | bytes]) -> None:
        self._answer = answer
        self.is_closed = False
        self.recycled = 0

    async def exchange(self, key: int, version: int, body: Any, timeout_s: float) -> tuple[memoryview, int]:
        assert (key, version, self.is_closed) == (ApiKey.FETCH, VERSION, False)
        request = decode_fetch_request(b"".join(body), 0, version)
        await asyncio.sleep(0.001)
        answer = self._answer(request)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, bytes):
            return memoryview(answer), 0
        if isinstance(answer, int):
            response = FetchResponse([], answer)
        else:
            response = FetchResponse([FetchTopicResponse("", TOPIC_ID, answer)])
        return memoryview(whole(response, version)), 0

    def recycle(self, frame: memoryview) -> None:
        self.recycled += 1

    def close(self) -> None:
        self.is_closed = True


class World:
    """A replicator with everything around it that is not its own."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.asked: list[tuple[float, FetchRequest]] = []
        self.answers: list[Rows | Exception | int | bytes] = []
        """In order; then nothing new, when the poll is over."""
        self.connections: list[LeaderConnection] = []
        self.refusals: list[Exception] = []
        self.suspected: list[int] = []
        self.doubts: list[tuple[int, bool]] = []
        self.isr: tuple[int, ...] = (ME, LEADER)
        self.rate = 1_000.0
        self.high_watermark = 0
        self.broker_epoch = EPOCH_OF_MINE
        image: Any = SimpleNamespace(
            broker_id=ME,
            partition=lambda *tp: SimpleNamespace(isr=self.isr),
            number_config=lambda key: self.rate,
        )
        liveness: Any = SimpleNamespace(
            suspect=self.suspected.append,
            doubt=lambda broker_id, doubted: self.doubts.append((broker_id, doubted)),
        )
        self.replicator = Replicator(bench.runtime, image, self, liveness)  # type: ignore[arg-type]

    async def connect(self, broker_id: int) -> LeaderConnection:
        assert broker_id == LEADER
        if self.refusals:
            raise self.refusals.pop(0)
        self.connections.append(LeaderConnection(self._next))
        return self.connections[-1]

    def _next(self, request: FetchRequest) -> Rows | Exception | int | bytes:
        self.asked.append((asyncio.get_running_loop().time(), request))
        return self.answers.pop(0) if self.answers else [NOTHING._replace(high_watermark=self.high_watermark)]

    def follow(self) -> None:
        self.bench.partition.follow(LEADER, EPOCH)
        self.replicator.follow(self.bench.partition, LEADER)

    @property
    def rows(self) -> list[FetchPartition]:
        return [request.topics[0].partitions[0] for _, request in self.asked]


def records(offset: int, high_watermark: int = 0) -> Rows:
    return [FetchPartitionResponse(0, 0, high_watermark, high_watermark, 0, records=sent(offset))]


def on_a_follower(scenario: Callable[[World], Any], **config: Any) -> None:
    async def run(bench: Bench) -> None:
        await scenario(World(bench))

    on_a_machine(run, **config)


async def pause(seconds: float = 0.05) -> None:
    await asyncio.sleep(seconds)


def test_it_asks_for_what_comes_next_once_the_last_is_on_disk() -> None:
    async def scenario(world: World) -> None:
        world.answers, world.high_watermark = [records(0), records(1, 1)], 2
        world.follow()
        await pause()
        first = world.asked[0][1]
        assert (first.replica_id, first.replica_epoch, first.max_wait_ms, first.min_bytes, first.max_bytes) == (
            ME, EPOCH_OF_MINE, MAX_WAIT_MS, 1, FETCH_BYTES,
        )  # fmt: skip
        assert (first.isolation_level, first.session_id, first.session_epoch) == (0, 0, -1)
        assert [topic.topic_id for topic in first.topics] == [TOPIC_ID]
        assert world.rows[0] == FetchPartition(0, EPOCH, 0, -1, 0, PARTITION_BYTES)
        assert [(row.fetch_offset, row.last_fetched_epoch) for row in world.rows[:3]] == [
            (0, -1), (1, EPOCH), (2, EPOCH),
        ]  # fmt: skip
        assert world.bench.log.end_offset == world.bench.partition.high_watermark == 2
        assert world.doubts == [(LEADER, False)] and not world.suspected
        assert world.connections[0].recycled >= len(world.asked) - 1
        assert list(world.replicator.followed()) == [world.bench.partition]

    on_a_follower(scenario)


def test_a_disk_that_hangs_is_waited_for_and_not_for_ever() -> None:
    async def scenario(world: World) -> None:
        world.answers = [records(0)]
        world.follow()
        loop = asyncio.get_running_loop()
        world.bench.disk.hang_until_s = loop.time() + 3.0
        await pause(2.9)
        assert len(world.asked) == 1, "what is not on disk is not confirmed"
        await pause(1.5)
        assert len(world.asked) > 1 and world.rows[1].fetch_offset == 1

    on_a_follower(scenario)


def test_who_leads_the_partition_now_is_asked_and_nobody_else() -> None:
    async def scenario(world: World) -> None:
        world.follow()
        await pause()
        world.replicator.forget(world.bench.partition)
        await pause(1.0)
        count = len(world.asked)
        assert not list(world.replicator.followed())
        await pause(5.0)
        assert len(world.asked) == count
        world.follow()
        await pause()
        assert len(world.asked) > count and len(world.connections) == 1, "over the same connection"
        world.replicator.follow(world.bench.partition, -1)
        await pause(1.0)
        count = len(world.asked)
        await pause(5.0)
        assert len(world.asked) == count, "nobody leads it"

    on_a_follower(scenario)


def test_an_answer_for_what_is_followed_no_more_is_dropped() -> None:
    async def scenario(world: World) -> None:
        def forget_meanwhile(request: FetchRequest) -> Rows | Exception | int | bytes:
            world.replicator.forget(world.bench.partition)
            return records(0)

        world._next = forget_meanwhile  # type: ignore[method-assign]
        world.follow()
        await pause(1.0)
        assert world.bench.log.end_offset == 0

    on_a_follower(scenario)


def test_an_answer_for_what_was_not_asked_is_left_alone() -> None:
    async def scenario(world: World) -> None:
        world.answers = [[NOTHING._replace(partition=5), *records(0)]]
        world.follow()
        await pause()
        assert world.bench.log.end_offset == 1

    on_a_follower(scenario)


def kind_of(code: int) -> ErrorKind:
    return ErrorKind.UNKNOWN_SERVER_ERROR if code == 9_999 else ErrorKind(code)


def test_f17_each_trouble_of_a_partition_is_its_own() -> None:
    async def scenario(world: World) -> None:
        partition = world.bench.partition
        diverging = NOTHING._replace(diverging_epoch=EpochEndOffset(EPOCH, 1))
        world.answers = [records(0), records(1), [diverging]]
        world.follow()
        await pause()
        assert world.bench.log.end_offset == 1 and len(world.asked) == 3, "it rests"
        await pause(FIRST_PAUSE_MS / 1000 + 0.2)
        assert world.rows[3].fetch_offset == 1
        world.answers = [[NOTHING._replace(error_code=ErrorKind.OFFSET_OUT_OF_RANGE, log_start_offset=40)]]
        await pause(0.5)
        assert world.rows[-1].fetch_offset == 40 and world.rows[-1].log_start_offset == 40
        for code in (int(ErrorKind.NOT_LEADER_OR_FOLLOWER), 9_999):
            world.answers = [[NOTHING._replace(error_code=code)]]
            begun = len(world.asked)
            await pause(0.02)
            assert len(world.asked) <= begun + 3, "it rests for a moment"
            assert partition.following._refused_with is kind_of(code)
            await pause(1.0)
            assert len(world.asked) > begun + 3
        assert len(world.connections) == 1 and not world.bench.failures

    on_a_follower(scenario)


def test_a_connection_that_broke_is_doubted_and_made_again_at_once() -> None:
    async def scenario(world: World) -> None:
        world.answers = [PeerLost("gone"), records(0)]
        world.follow()
        await pause(0.02)
        assert world.doubts == [(LEADER, False), (LEADER, True), (LEADER, False)]
        assert [connection.is_closed for connection in world.connections] == [True, False]
        assert world.bench.log.end_offset == 1 and not world.suspected

    on_a_follower(scenario)


def test_a_refused_connection_makes_its_broker_suspect_and_is_tried_again_after_a_pause() -> None:
    async def scenario(world: World) -> None:
        world.refusals = [PeerRefused("no"), PeerLost("slow"), PeerRefused("no")]
        world.follow()
        begun = asyncio.get_running_loop().time()
        await pause(0.05)
        assert world.suspected == [LEADER] and len(world.refusals) == 2
        await pause(1.0)
        assert world.suspected == [LEADER, LEADER], "a lost one says nothing for certain"
        assert world.doubts == [(LEADER, False)]
        assert world.asked[0][0] - begun >= 3 * replicator.PAUSE_S

    on_a_follower(scenario)


def test_f17_an_answer_that_makes_no_sense_ends_the_connection_and_not_the_fetcher() -> None:
    async def scenario(world: World) -> None:
        world.answers = [b"\x00\x01\x02", records(0)]
        world.follow()
        await pause(0.05)
        assert [connection.is_closed for connection in world.connections] == [True], "after a pause"
        await pause(0.2)
        assert [connection.is_closed for connection in world.connections] == [True, False]
        assert world.bench.log.end_offset == 1 and world.doubts[-1] == (LEADER, False)

    on_a_follower(scenario)


def test_a_fetch_that_fails_as_a_whole_ends_the_connection() -> None:
    async def scenario(world: World) -> None:
        world.answers = [int(ErrorKind.STALE_BROKER_EPOCH), 9_999, records(0)]
        world.follow()
        await pause(0.5)
        assert [connection.is_closed for connection in world.connections] == [True, True, False]
        assert world.bench.log.end_offset == 1

    on_a_follower(scenario)


def test_kip_73_who_is_throttled_and_behind_takes_what_the_rate_allows() -> None:
    async def scenario(world: World) -> None:
        size = len(sent(0))
        world.rate, world.isr = float(size), (LEADER,)  # one batch a second
        world.answers = [records(0), records(1), records(2)]
        world.follow()
        await pause(0.5)
        assert world.rows[0].partition_max_bytes == size
        assert world.bench.log.end_offset == 1 and len(world.asked) == 1
        await pause(1.0)
        assert world.bench.log.end_offset == 2
        world.isr = (ME, LEADER)
        await pause(0.5)
        assert world.bench.log.end_offset == 3, "who is in sync is not held back"
        assert world.rows[-1].partition_max_bytes == PARTITION_BYTES

    on_a_follower(scenario, follower_replication_throttled_replicas=("*",))


def test_kip_73_another_replicas_throttle_is_not_ours() -> None:
    async def scenario(world: World) -> None:
        world.rate, world.isr = 1.0, (LEADER,)
        world.answers = [records(0), records(1), records(2)]
        world.follow()
        await pause(0.5)
        assert world.bench.log.end_offset == 3
        world.bench.partition.configure(
            TopicConfig(follower_replication_throttled_replicas=("0:1",)), LogConfig()
        )
        world.answers = [records(3), records(4)]
        await pause(0.5)
        assert world.bench.log.end_offset == 4

    on_a_follower(scenario, follower_replication_throttled_replicas=("0:2",))


def test_who_joins_does_not_wait_for_a_poll_that_knows_nothing_of_it() -> None:
    """Decision 0105: the poll is ended by an empty request behind it, as the leader's side of k01_fetch does."""

    async def scenario(world: World) -> None:
        asked: list[FetchRequest] = []
        poll_ends = asyncio.Event()

        async def exchange(key: int, version: int, body: Any, timeout_s: float) -> tuple[memoryview, int]:
            request = decode_fetch_request(b"".join(body), 0, version)
            asked.append(request)
            if request.topics and request.max_wait_ms:
                await poll_ends.wait()
            poll_ends.set()
            await asyncio.sleep(0.001)
            topics = [FetchTopicResponse("", TOPIC_ID, [NOTHING])] if request.topics else []
            return memoryview(whole(FetchResponse(topics), version)), 0

        connect = world.connect

        async def connect_to_one_that_lets_us_wait(broker_id: int) -> LeaderConnection:
            connection = await connect(broker_id)
            connection.exchange = exchange  # type: ignore[method-assign]
            return connection

        world.connect = connect_to_one_that_lets_us_wait  # type: ignore[method-assign]
        world.follow()
        await pause()
        assert [bool(request.topics) for request in asked] == [True], "a long poll"
        world.follow()
        await pause()
        first, empty, second = asked[:3]
        assert (first.max_wait_ms, empty.topics, bool(second.topics)) == (MAX_WAIT_MS, [], True)
        assert empty.replica_id == ME, "only a follower's poll is ended by what it asks next"

    on_a_follower(scenario)
