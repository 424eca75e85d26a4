"""A fetch of a view on virtual time: what it waits for, what it costs the log, what it forgets, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from log_bench import SMALL, WALL_MS, fresh_log, put

from headrace.broker.fetch import FetchReader, FetchTarget, Got, LocalFetch
from headrace.broker.fetch_sessions import SessionPartition
from headrace.broker.views import scanner as scanner_module
from headrace.broker.views.fetching import HURRY_S, OVERTIME_S, fetch_views
from headrace.broker.views.scanner import BATCH_SECONDS, PIECE_SECONDS, Breath, Lens, TooCostly
from headrace.broker.views.views import Views
from headrace.cluster.configs import TopicConfig
from headrace.cluster.views import ViewSpec
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID, TopicPartition
from headrace.core.ports import Buffer
from headrace.log.partition_log import PartitionLog
from headrace.log.results import RollReason
from headrace.records.batch import scan
from headrace.records.build import Record, build_batch
from headrace.records.filters import compile_filter
from headrace.records.read import read_records
from headrace.testing.simulation import Simulation

LOG = replace(SMALL, segment_bytes=1 << 20)


class Source:
    """A led partition over a real log in memory: everything that is appended is committed."""

    is_leader = True

    config = TopicConfig()

    def __init__(self, config: Any = LOG) -> None:
        self.log: PartitionLog = fresh_log(config)
        self.tp = TopicPartition("orders", 0)
        self.topic_id = b"t" * 16
        self.leader_epoch = 0
        self.bytes_out = self.reads = 0
        self.fetch_waiters: dict[Any, None] = {}
        self.stable: int | None = None
        self.stepped_over: list[int] = []

    @property
    def high_watermark(self) -> int:
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark if self.stable is None else self.stable

    def fetch_refusal(self, epoch: int, **_: Any) -> ErrorKind:
        return ErrorKind.NONE

    def step_over(self, offset: int, problem: Exception) -> None:
        self.stepped_over.append(offset)

    def read(self, offset: int, max_bytes: int, upto: int) -> Buffer:
        data = self.log.read(offset, max_bytes, upto)
        self.reads += len(data)
        self.bytes_out += len(data)
        return data  # type: ignore[return-value]

    def append(self, *tags: str, key: bytes = b"k") -> None:
        records = [Record(key, tag.encode() * 3, (("tag", tag.encode()),)) for tag in tags]
        put(self.log, bytearray(build_batch(records, wall_ms=WALL_MS)))
        waiters, self.fetch_waiters = list(self.fetch_waiters), {}
        for waiter in waiters:
            waiter.wake()


class World:
    def __init__(self, runtime: Any) -> None:
        self.source = Source()
        self.views = Views(runtime, None, lambda topic, number: (self.source, ErrorKind.NONE))  # type: ignore[arg-type,return-value]
        self.answers: list[tuple[float, Got]] = []
        self.begun = asyncio.get_running_loop().time()

    def lens(self, where: str) -> Lens:
        return self.views.passing_lens(self.source, where)  # type: ignore[arg-type]

    def fetch(
        self, where: str, offset: int = 0, *, wait_ms: int = 500, min_bytes: int = 1, committed: bool = False
    ) -> Any:
        wanted = SessionPartition("eu", ZERO_UUID, 0)
        wanted.fetch_offset, wanted.max_bytes = offset, 1 << 20
        target = FetchTarget(wanted, self.source, None, self.lens(where))  # type: ignore[arg-type]
        request = LocalFetch([target], min_bytes, 1 << 20, wait_ms, FetchReader(read_committed=committed))
        begun = asyncio.get_running_loop().time()

        def respond(results: list[Got]) -> None:
            self.answers.append((asyncio.get_running_loop().time() - begun, results[0]))

        return fetch_views(self.views, request, respond)

    async def get(self, where: str, offset: int = 0, **how: Any) -> tuple[float, list[int], int]:
        """Seconds, offsets of the records, and where the client would go on."""
        known = len(self.answers)
        self.fetch(where, offset, **how)
        while len(self.answers) == known:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        seconds, got = self.answers[-1]
        assert got.error is ErrorKind.NONE, got
        found, following = [], offset
        data: Any = got.data
        for position, header in scan(data):
            following = header.next_offset
            if not header.is_control:
                found += [record.offset for record in read_records(data, position)]
        return seconds, found, following

    async def everything(self, where: str) -> list[int]:
        found, following = [], 0
        while following < self.source.high_watermark:
            _, part, following = await self.get(where, following)
            found += part
        return found


def run(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    simulation = Simulation(1)

    async def start(simulation: Simulation) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def program(node: Any, runtime: Any) -> None:
            try:
                await scenario(World(runtime))
            except BaseException as problem:
                done.set_exception(problem)
            else:
                done.set_result(None)

        simulation.node("b1", program).start()
        await done

    simulation.run(start, limit_s=600)


EU = 'tag == "eu"'


def test_what_matches_is_answered_at_once_and_found_again_without_reading() -> None:
    async def scenario(world: World) -> None:
        for number in range(50):
            world.source.append("us", "eu" if number % 10 == 3 else "us")
        seconds, found, following = await world.get(EU)
        assert found == [7, 27, 47, 67, 87] and following == 100 and seconds < 0.1
        read = world.source.reads
        assert (await world.get(EU))[1] == found and world.source.reads == read, "the second reader is cheap"
        assert (await world.get(EU, 28))[1] == [47, 67, 87]

    run(scenario)


def test_the_tag_index_spares_another_view_the_reading() -> None:
    async def scenario(world: World) -> None:
        for number in range(50):
            world.source.append("us", "eu" if number % 10 == 3 else "us")
        await world.get(EU)
        read = world.source.reads
        assert (await world.get('tag == "mars"'))[2] == 100 and world.source.reads == read
        assert (await world.get('tag in ("eu", "mars") and size > 1'))[1] == [7, 27, 47, 67, 87]
        assert world.source.reads - read < read / 5
        assert world.views.scanner.skipped_batches >= 50

    run(scenario)


def test_nothing_matches_and_the_client_moves_on_soon() -> None:
    async def scenario(world: World) -> None:
        world.source.append("us", "us")
        seconds, found, following = await world.get(EU)
        assert (found, following) == ([], 2) and HURRY_S <= seconds < HURRY_S + 0.05
        seconds, found, following = await world.get(EU, 2)
        assert (found, following) == ([], 2) and seconds >= 0.5, (
            "at the end it waits its time, without a busy loop"
        )

    run(scenario)


def test_a_parked_fetch_wakes_for_a_match_and_not_for_others() -> None:
    async def scenario(world: World) -> None:
        world.source.append("us")
        world.fetch(EU, 1, wait_ms=60_000)
        await asyncio.sleep(1)
        world.source.append("eu")
        await asyncio.sleep(0.05)
        assert len(world.answers) == 1
        data: Any = world.answers[0][1].data
        assert [record.offset for record in read_records(data)] == [1]
        parked = world.fetch(EU, 2, wait_ms=60_000)
        parked.cancel()
        world.source.append("eu")
        await asyncio.sleep(0.05)
        assert len(world.answers) == 1 and not world.source.fetch_waiters

    run(scenario)


def test_a_fetch_that_may_not_wait_still_gets_somewhere() -> None:
    async def scenario(world: World) -> None:
        world.source.append("us", "eu")
        seconds, found, _ = await world.get(EU, wait_ms=0)
        assert found == [1] and seconds < 0.1
        assert (await world.get('tag == "mars"', wait_ms=0, min_bytes=0))[2] == 2

    run(scenario)


def test_enough_is_what_the_client_says() -> None:
    async def scenario(world: World) -> None:
        world.source.append("eu")
        seconds, found, _ = await world.get(EU, min_bytes=10_000, wait_ms=300)
        assert found == [0] and seconds >= HURRY_S

    run(scenario)


def test_a_reader_of_committed_data_stops_at_the_last_stable_offset() -> None:
    """R48."""

    async def scenario(world: World) -> None:
        world.source.append("eu")
        world.source.append("eu")
        assert (await world.get(EU))[1] == [0, 1]
        world.source.stable = 1
        assert (await world.get(EU, committed=True))[1:] == ([0], 1)

    run(scenario)


def test_compaction_truncation_and_leaderships_empty_the_strip() -> None:
    """R23: what was filtered from another history of the log is not shown."""

    async def scenario(world: World) -> None:
        source = world.source = Source(
            replace(LOG, compact=True, delete=False, min_cleanable_dirty_ratio=0.0)
        )
        for key in (b"a", b"b", b"a"):
            source.append("eu", key=key)
        source.log.roll(RollReason.REQUESTED)
        source.log.sync()
        source.append("eu", key=b"c")
        assert await world.everything(EU) == [0, 1, 2, 3]
        assert source.log.compact(WALL_MS, 0, source.log.end_offset, forced=True) == 1
        assert await world.everything(EU) == [1, 2, 3]
        source.log.truncate(3)
        source.append("us")
        assert await world.everything(EU) == [1, 2]
        read = source.reads
        await world.get(EU)
        assert source.reads == read
        source.leader_epoch = 1
        await world.get(EU)
        assert source.reads > read

    run(scenario)


def test_what_was_deleted_is_out_of_range() -> None:
    async def scenario(world: World) -> None:
        for _ in range(4):
            world.source.append("eu")
        await world.get(EU)
        world.source.log.sync()
        world.source.log.delete_records(2)
        world.fetch(EU, 1)
        await asyncio.sleep(0.01)
        assert world.answers[-1][1].error is ErrorKind.OFFSET_OUT_OF_RANGE
        assert (await world.get(EU, 2))[1] == [2, 3]

    run(scenario)


@pytest.mark.parametrize("problem", [TooCostly(), RuntimeError("a bug of ours")])
def test_a_filter_that_fails_is_told_and_tried_again_later(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        world.source.append("eu")

        def fails(*_: Any, **__: Any) -> Any:
            raise problem

        sift = scanner_module.sift
        monkeypatch.setattr(scanner_module, "sift", fails)
        world.fetch(EU)
        await asyncio.sleep(1)
        assert world.answers[-1][1].error is ErrorKind.UNKNOWN_SERVER_ERROR
        monkeypatch.setattr(scanner_module, "sift", sift)
        assert (await world.get('tag in ("eu")'))[1] == [0], "other views go on"
        await asyncio.sleep(61)
        assert (await world.get(EU))[1] == [0]

    run(scenario)


def test_a_batch_that_nobody_can_open_holds_up_nobody() -> None:
    async def scenario(world: World) -> None:
        world.source.append("eu")
        good = build_batch([Record(b"k", b"v", (("tag", b"eu"),))], wall_ms=WALL_MS)
        from headrace.records.batch import read_header
        from headrace.records.build import assemble

        put(world.source.log, bytearray(assemble(read_header(good), b"\x06tag\x04eu not a record")))
        world.source.append("eu")
        assert (await world.get(EU))[1] == [0, 2]
        assert world.source.stepped_over == [1]

    run(scenario)


def test_waiting_is_bounded_when_the_scanner_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        world.source.append("eu")
        monkeypatch.setattr(world.views.scanner, "want", lambda lens, offset: None)
        seconds, found, following = await world.get(EU)
        assert (found, following) == ([], 0) and seconds >= OVERTIME_S

    run(scenario)


class Watch:
    seconds = 0.0
    rests = 0

    def elapsed_s(self) -> float:
        return self.seconds

    cpu_s = elapsed_s

    def rest(self, seconds: float) -> None:
        self.rests += 1


def test_breath_pauses_and_gives_up() -> None:
    watch = Watch()
    breath = Breath(watch)
    breath.breathe()
    assert watch.rests == 0
    watch.seconds = PIECE_SECONDS
    breath.breathe()
    assert watch.rests == 1 and not breath.enough()
    watch.seconds = 1.0
    breath.breathe()
    watch.seconds += BATCH_SECONDS + 1
    with pytest.raises(TooCostly):
        breath.breathe()
    assert breath.enough()
    breath.breathe()


def test_filters_that_come_with_fetches_are_forgotten_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        monkeypatch.setattr("headrace.broker.views.views.MAX_PASSING", 3)
        first = world.lens("offset > 0")
        for number in range(1, 4):
            world.lens(f"offset > {number}")
        assert world.lens("offset > 0") is not first and len(world.views._passing) == 3
        assert first.spec == ViewSpec("orders", first.spec.filter) and compile_filter("true")

    run(scenario)
