"""What a fetch gets of real logs on a simulated disk, and for how many partitions at once (R7, R48, KIP-73, KIP-74; A3)."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from replica_bench import EPOCH, Bench, on_a_machine, sent

from headrace.broker.fetch import FetchReader, FetchTarget, Got, LocalFetch, WideFetch, fetch, read_one
from headrace.broker.fetch_sessions import SessionPartition
from headrace.broker.pacing import Pace
from headrace.broker.partition import TRUSTED
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.log.results import AppendResult
from headrace.records.batch import read_header
from headrace.records.build import Record, build_batch, build_control_batch
from headrace.testing.sim_disk import DiskFault

CONSUMER, COMMITTED, REPLICA = FetchReader(), FetchReader(read_committed=True), FetchReader(2)
PLENTY = 1 << 20


def target(bench: Bench, offset: int = 0, *, max_bytes: int = PLENTY, **given: Any) -> FetchTarget:
    wanted = SessionPartition("t", ZERO_UUID, 0)
    wanted.fetch_offset, wanted.max_bytes = offset, max_bytes
    return FetchTarget(wanted, bench.partition, **given)


def read(bench: Bench, offset: int = 0, reader: FetchReader = CONSUMER, max_bytes: int = PLENTY) -> Got:
    return read_one(target(bench, offset), max_bytes, reader)


async def settled() -> None:
    await asyncio.sleep(1.0)


def transactional(bench: Bench, producer_id: int, sequence: int) -> None:
    batch = build_batch(
        [Record(None, b"t")], wall_ms=1, producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
        transactional=True,
    )  # fmt: skip
    view = memoryview(bytearray(batch))
    appended = bench.partition.append(view, read_header(view), urgent=True, ticket=TRUSTED)
    assert isinstance(appended, AppendResult)


def test_who_reads_how_far() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead((1, 2))
        bench.append()
        await settled()
        size = len(sent(0))
        got = read(bench)
        assert (got.error, got.high_watermark, got.last_stable_offset, got.log_start_offset) == (
            ErrorKind.NONE, 0, 0, 0,
        )  # fmt: skip
        assert got.data == b"" and got.aborted is None, "broker 2 does not have it"
        assert len(read(bench, reader=REPLICA).data) == size
        assert read(bench, 1, REPLICA).data == b"" and read(bench, 1, REPLICA).error is ErrorKind.NONE
        assert read(bench, reader=REPLICA, max_bytes=0).data == b""
        assert read(bench, 2).error is ErrorKind.OFFSET_OUT_OF_RANGE

    on_a_machine(scenario)


def test_what_is_outside_the_log_is_said_with_what_there_is() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        for _ in range(3):
            bench.append()
        await settled()
        bench.partition.delete_records(2)
        for offset in (1, 4):
            got = read(bench, offset)
            assert got == Got(ErrorKind.OFFSET_OUT_OF_RANGE, 3, 3, 2)
        assert read(bench, 2).error is read(bench, 3).error is ErrorKind.NONE
        bench.partition.resign()
        bench.partition.follow(2, EPOCH + 1)
        near = FetchReader(rack="here")
        assert read(bench, 4, near) == Got(ErrorKind.OFFSET_NOT_AVAILABLE, 3, 3, 2), "we may be behind"
        assert read(bench, 1, near).error is ErrorKind.OFFSET_OUT_OF_RANGE
        assert len(read(bench, 2, near).data) == len(sent(0))
        assert read(bench, 2).error is ErrorKind.NOT_LEADER_OR_FOLLOWER, (
            "who is not sent here reads at the leader"
        )

    on_a_machine(scenario)


def test_r48_read_committed_ends_before_what_is_open_and_names_what_was_aborted() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        transactional(bench, 5, 0)
        bench.partition.append_internal(build_control_batch(False, 5, 0, 0, 1), urgent=True)
        transactional(bench, 6, 0)
        await settled()
        everything, committed = read(bench), read(bench, reader=COMMITTED)
        assert everything.aborted is None and everything.last_stable_offset == 2
        assert len(committed.data) < len(everything.data)
        assert committed.aborted == [(5, 0)]
        assert read(bench, 2, COMMITTED) == Got(ErrorKind.NONE, 3, 2, 0, b"", [])

    on_a_machine(scenario)


def test_what_is_known_already_is_not_read() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        bench.append()
        await settled()
        refused = Got(ErrorKind.TOPIC_AUTHORIZATION_FAILED)
        assert read_one(target(bench, verdict=refused), PLENTY, CONSUMER) is refused

    on_a_machine(scenario)


def test_s26_what_can_not_be_read_is_refused() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        bench.append()
        await settled()
        bench.disk.arm(DiskFault.READ_ERROR, "/p/0", error=errno.EIO)
        assert read(bench) == Got(ErrorKind.KAFKA_STORAGE_ERROR, 1, 1, 0)

    on_a_machine(scenario)


class Throttle:
    """As much as a test says."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.is_spent = False
        self.spent = 0

    def spend(self, count: int) -> None:
        self.spent += count


def test_a_follower_that_catches_up_takes_what_its_throttle_leaves() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead((1, 2))
        for _ in range(4):
            bench.append()
        await settled()
        size = len(sent(0))
        throttle = Throttle(2 * size)
        held = target(bench, throttle=throttle)
        assert len(read_one(held, PLENTY, REPLICA).data) == 2 * size == throttle.spent
        assert len(read_one(held, size, REPLICA).data) == size
        throttle.is_spent = True
        assert read_one(held, PLENTY, REPLICA).data == b"" and throttle.spent == 3 * size

    on_a_machine(scenario)


def test_kip_74_the_first_batch_comes_whole_and_the_answer_stays_in_its_size() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        for _ in range(4):
            bench.append()
        await settled()
        size = len(sent(0))

        def sizes(max_bytes: int, *targets: FetchTarget) -> list[int]:
            answers: list[list[Got]] = []
            assert fetch(LocalFetch(targets, 1, max_bytes, 1_000, CONSUMER), answers.append) is None
            return [len(got.data) for got in answers[0]]

        assert sizes(0, target(bench), target(bench)) == [size, 0]
        assert sizes(PLENTY, target(bench, max_bytes=0), target(bench, max_bytes=0)) == [size, 0]
        assert sizes(3 * size, target(bench, max_bytes=2 * size), target(bench)) == [2 * size, size]
        assert sizes(PLENTY, target(bench, 4), target(bench, 1)) == [0, 3 * size]

    on_a_machine(scenario)


def test_what_is_enough_is_answered_at_once_and_else_it_waits() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        bench.append()
        await settled()
        size = len(sent(0))
        answers: list[list[Got]] = []

        def ask(*targets: FetchTarget, min_bytes: int = 1, wait_ms: int = 1_000) -> bool:
            parked = fetch(LocalFetch(targets, min_bytes, PLENTY, wait_ms, CONSUMER), answers.append)
            if parked is not None:
                parked.cancel()
            return parked is not None

        assert not ask(target(bench), min_bytes=size)
        assert ask(target(bench), min_bytes=size + 1)
        assert not ask(target(bench), min_bytes=size + 1, wait_ms=0)
        assert not ask(target(bench, 9), target(bench, 1)), "who has an error is told so"
        assert not ask(target(bench, 1, verdict=Got(ErrorKind.NONE)))
        assert not ask()
        assert ask(target(bench, 1))
        assert len(answers) == 5

    on_a_machine(scenario)


# -- very many partitions ----------------------------------------------------------------------------------------------------


def wide(bench: Bench, *, offset: int = 0, min_bytes: int = 1, wait_ms: int = 60_000) -> WideFetch:
    request = LocalFetch([target(bench, offset)], min_bytes, PLENTY, wait_ms, CONSUMER)
    return WideFetch(request, Pace(bench.runtime.clock))


def test_a3_a_wide_fetch_answers_when_there_is_something() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        parked: list[int] = []
        waiting = wide(bench)
        asked = asyncio.ensure_future(waiting.results(lambda: parked.append(1)))
        await settled()
        assert parked == [1] and not asked.done()
        assert list(bench.partition.fetch_waiters) == [waiting]
        bench.append()
        begun = asyncio.get_running_loop().time()
        got = await asked
        assert got is not None and len(got[0].data) == len(sent(0))
        assert asyncio.get_running_loop().time() - begun < 1.0
        assert not bench.partition.fetch_waiters, "nothing is left behind"
        at_once = await wide(bench).results(lambda: parked.append(2))
        assert at_once is not None and len(at_once[0].data) == len(sent(0)) and parked == [1]

    on_a_machine(scenario)


def test_a3_a_wide_fetch_that_is_woken_for_too_little_waits_on_until_its_time_is_up() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        parked: list[float] = []
        clock = asyncio.get_running_loop()
        begun = clock.time()
        waiting = wide(bench, min_bytes=PLENTY, wait_ms=5_000)
        asked = asyncio.ensure_future(waiting.results(lambda: parked.append(clock.time())))
        await settled()
        bench.append()
        got = await asked
        assert got is not None and len(got[0].data) == len(sent(0))
        assert clock.time() - begun == pytest.approx(5.0, abs=0.01)
        assert len(parked) == 2
        nothing = await wide(bench, offset=1, wait_ms=-1).results(lambda: parked.append(0.0))
        assert nothing is not None and nothing[0].data == b"" and len(parked) == 2

    on_a_machine(scenario)


def test_a3_a_wide_fetch_whose_client_is_gone_ends() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        waiting = wide(bench)
        asked = asyncio.ensure_future(waiting.results(lambda: None))
        await settled()
        waiting.cancel()
        assert await asked is None
        assert not bench.partition.fetch_waiters
        waiting = wide(bench)
        waiting.cancel()
        assert await waiting.results(lambda: None) is None

    on_a_machine(scenario)
