"""Long polls: answer at once when there is enough, else wait for data or the deadline, never in between (trap 23)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.broker.fetch import FetchReader, FetchTarget, Got, LocalFetch, ParkedFetch, fetch
from headrace.broker.fetch_sessions import SessionPartition
from headrace.cluster.configs import TopicConfig
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.testing.simulation import Simulation

CONSUMER = FetchReader()


class Partition:
    """A log of bytes: offset n is byte n. Committed up to what the test says."""

    is_leader = True
    config = TopicConfig()

    def __init__(self, size: int = 0) -> None:
        self.log = self
        self.start_offset = 0
        self.end_offset = self.high_watermark = size
        self.fetch_waiters: dict[Any, None] = {}
        self.replica_waiters: dict[Any, None] = {}
        self.has_near_readers = True
        self.told: dict[int, tuple[int, int]] = {}
        self.refusal = ErrorKind.NONE
        self.limits: list[int] = []

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    def fetch_refusal(self, epoch: int, **_: Any) -> ErrorKind:
        return self.refusal

    def read(self, offset: int, max_bytes: int, upto: int) -> bytes:
        self.limits.append(max_bytes)
        return b"x" * max(1, min(max_bytes, upto - offset))

    def grow(self, size: int) -> None:
        self.end_offset = self.high_watermark = self.end_offset + size
        self.wake()

    def wake(self) -> None:
        waiters, self.fetch_waiters = list(self.fetch_waiters), {}
        for waiter in waiters:
            waiter.wake()


class Poll:
    def __init__(
        self,
        *partitions: Partition,
        min_bytes: int = 1,
        wait_ms: int = 500,
        max_bytes: int = 1000,
        reader: FetchReader = CONSUMER,
    ) -> None:
        self._is_at_the_end = reader.is_replica
        self.answer: list[Got] | None = None
        self.answers = 0
        targets = [self._target(partition) for partition in partitions]
        request = LocalFetch(targets, min_bytes, max_bytes, wait_ms, reader)
        self.parked = fetch(request, self._answered)

    def _target(self, partition: Partition) -> FetchTarget:
        wanted = SessionPartition("t", ZERO_UUID, 0)
        wanted.max_bytes = 600
        wanted.fetch_offset = partition.end_offset if self._is_at_the_end else 0
        return FetchTarget(wanted, partition)  # type: ignore[arg-type]

    def _answered(self, got: list[Got]) -> None:
        self.answer = got
        self.answers += 1

    @property
    def sizes(self) -> list[int]:
        assert self.answer is not None
        return [len(got.data) for got in self.answer]


def simulate(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def run(_: Any) -> None:
        await scenario()

    Simulation(1).run(run, limit_s=600.0)


@pytest.mark.parametrize(
    ("present", "min_bytes", "wait_ms", "at_once"),
    [(10, 1, 500, True), (10, 10, 500, True), (10, 11, 500, False), (0, 1, 500, False), (0, 1, 0, True), (0, 0, 500, True)],
)  # fmt: skip
def test_now_or_later(present: int, min_bytes: int, wait_ms: int, at_once: bool) -> None:
    async def scenario() -> None:
        poll = Poll(Partition(present), min_bytes=min_bytes, wait_ms=wait_ms)
        assert (poll.answer is not None) is at_once and (poll.parked is None) is at_once
        if not at_once:
            await asyncio.sleep(wait_ms / 1000 - 0.01)
            assert poll.answer is None, "not a moment early"
            await asyncio.sleep(0.02)
            assert poll.sizes == [present]

    simulate(scenario)


def test_data_wakes_it_once() -> None:
    async def scenario() -> None:
        partitions = [Partition(), Partition(), Partition()]
        poll = Poll(*partitions, min_bytes=20)
        partitions[0].grow(10)
        await asyncio.sleep(0.001)
        assert poll.answer is None, "ten bytes are too few"
        partitions[1].grow(10)
        partitions[2].grow(10)
        await asyncio.sleep(0.001)
        assert poll.sizes == [10, 10, 10] and poll.answers == 1
        assert not any(partition.fetch_waiters for partition in partitions)
        await asyncio.sleep(10)
        assert poll.answers == 1

    simulate(scenario)


def test_an_error_is_answered_at_once() -> None:
    """Trap 12."""

    async def scenario() -> None:
        fine, broken = Partition(), Partition()
        broken.refusal = ErrorKind.NOT_LEADER_OR_FOLLOWER
        poll = Poll(fine, broken)
        assert poll.answer is not None and poll.answer[1].error is ErrorKind.NOT_LEADER_OR_FOLLOWER
        beyond = Partition(5)
        beyond.start_offset = 3
        poll = Poll(beyond)
        assert poll.answer is not None
        (got,) = poll.answer
        assert got == Got(ErrorKind.OFFSET_OUT_OF_RANGE, 5, 5, 3), "with the numbers a client needs"

    simulate(scenario)


def test_leadership_lost_while_parked_is_told() -> None:
    async def scenario() -> None:
        partition = Partition()
        poll = Poll(partition)
        partition.refusal = ErrorKind.NOT_LEADER_OR_FOLLOWER
        partition.wake()
        await asyncio.sleep(0.001)
        assert poll.answer is not None and poll.answer[0].error is ErrorKind.NOT_LEADER_OR_FOLLOWER

    simulate(scenario)


def test_a_lost_client_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        partition = Partition()
        poll = Poll(partition)
        assert poll.parked is not None
        poll.parked.cancel()
        assert not partition.fetch_waiters
        partition.grow(100)
        await asyncio.sleep(10)
        assert poll.answer is None

    simulate(scenario)


def test_limits() -> None:
    """KIP-74, and the broker's own limit holds for the first partition too."""

    async def scenario() -> None:
        partitions = [Partition(5000), Partition(5000), Partition(5000)]
        poll = Poll(*partitions, max_bytes=1000)
        assert poll.sizes == [600, 400, 0]
        single = Partition(5000)
        assert Poll(single, max_bytes=100).sizes == [100]
        assert Poll(single, max_bytes=0).sizes == [1], "the first batch always comes"
        assert max(single.limits) <= 100

    simulate(scenario)


def test_a_follower_hears_soon_and_once_of_a_high_watermark_that_has_moved() -> None:
    """R20; decision 0105."""

    async def scenario() -> None:
        partition, follower = Partition(5), FetchReader(replica_id=2)
        partition.high_watermark = 3
        first = Poll(partition, reader=follower)
        await asyncio.sleep(0.02)
        assert first.answer is not None and first.answer[0].high_watermark == 3, "its first answer here"
        second = Poll(partition, reader=follower)
        await asyncio.sleep(0.1)
        assert second.answer is None, "there is nothing that it was not told"
        partition.high_watermark = 5
        for waiter in partition.replica_waiters:
            waiter.news(True)
        await asyncio.sleep(0.02)
        assert second.answer is not None and second.answer[0].high_watermark == 5
        assert second.answers == 1 and not partition.replica_waiters
        partition.has_near_readers = False
        slow = Poll(partition, reader=FetchReader(replica_id=4))
        await asyncio.sleep(0.1)
        assert slow.answer is None, "nobody reads there, so it may wait for data to come along with"
        await asyncio.sleep(0.1)
        assert slow.answer is not None
        partition.has_near_readers = True
        other = Poll(partition, reader=FetchReader(replica_id=3))
        await asyncio.sleep(0.02)
        assert other.answer is not None, "what one follower was told, another was not"

    simulate(scenario)


def test_who_has_sent_another_request_waits_no_longer() -> None:
    async def scenario() -> None:
        partition = Partition(5)
        partition.told[2] = (5, 0)
        poll = Poll(partition, reader=FetchReader(replica_id=2))
        assert isinstance(poll.parked, ParkedFetch)
        poll.parked.hurry()
        assert poll.answer is not None and not partition.replica_waiters
        poll.parked.hurry()
        await asyncio.sleep(10)
        assert poll.answers == 1

    simulate(scenario)
