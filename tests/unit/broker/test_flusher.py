"""S7, S9: one sync serves all that wait; a failed one is final. On virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.broker.flusher import (
    COMMIT_WINDOW_BYTES,
    COMMIT_WINDOW_S,
    SIDE_BY_SIDE_BYTES,
    STALLED_MS,
    SYNCS_AT_ONCE,
    Flusher,
)


class File:
    def __init__(self, name: str, trail: list[str]) -> None:
        self.name, self._trail = name, trail
        self.failure: OSError | None = None

    def sync(self) -> None:
        self._trail.append(self.name)
        if self.failure is not None:
            raise self.failure


class Flush:
    def __init__(self, *files: File) -> None:
        self.files = files


class Log:
    def __init__(self, *files: File) -> None:
        self.files = files
        self.done = 0
        self.failed: list[OSError] = []

    def begin_flush(self) -> Flush | None:
        return Flush(*self.files)

    def flush_done(self, flush: Flush) -> None:
        self.done += 1

    def flush_failed(self, flush: Flush, problem: OSError) -> None:
        self.failed.append(problem)


class Partition:
    tp = "t-0"

    def __init__(self, log: Log) -> None:
        self.log = log
        self.durable = 0
        self.failed = False

    def mark_failed(self) -> None:
        self.failed = True

    def on_durable(self) -> None:
        self.durable += 1


class Runtime:
    """Blocking work is a turn of the loop that takes `sync_s` of virtual time."""

    sync_s = 0.0

    def __init__(self) -> None:
        self.clock = self
        self.under_way = self.most_under_way = 0
        self.problems: list[Exception] = []

    def unexpected(self, where: str, problem: Exception, what: str) -> None:
        self.problems.append(problem)

    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    async def run_blocking(self, work: Callable[[], Any]) -> Any:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(self.sync_s * self.under_way)  # the first is back first
            return work()
        finally:
            self.under_way -= 1


def simulate(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    from headrace.testing.simulation import Simulation

    async def run(_: Any) -> None:
        await scenario()

    Simulation(1).run(run, limit_s=60.0)


class Bench:
    def __init__(self) -> None:
        self.trail: list[str] = []
        self.failures: list[OSError] = []
        self.runtime = Runtime()
        self.flusher = Flusher(self.runtime, self.failures.append)  # type: ignore[arg-type]
        self.files = [File(name, self.trail) for name in "abcdefgh"]
        self.partitions = [Partition(Log(file)) for file in self.files]

    def request(self, number: int, *, urgent: bool, size: int = 100) -> None:
        self.flusher.request(self.partitions[number], size, urgent=urgent)  # type: ignore[arg-type]


def test_one_round_serves_all_that_wait() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.runtime.sync_s = 0.010
        task = asyncio.get_running_loop().create_task(bench.flusher.run())
        bench.request(0, urgent=True)
        await asyncio.sleep(0.001)
        assert bench.flusher.sync_started_ms is not None
        for _ in range(50):
            bench.request(0, urgent=True)
            bench.request(1, urgent=True)
        await asyncio.sleep(0.1)
        assert bench.flusher.rounds == 2, "what came during the first round shares the second"
        assert sorted(bench.trail) == ["a", "a", "b"]
        assert [partition.durable for partition in bench.partitions[:2]] == [2, 1]
        task.cancel()

    simulate(scenario)


def test_what_nobody_waits_for_gathers_for_a_moment() -> None:
    async def scenario() -> None:
        bench = Bench()
        task = asyncio.get_running_loop().create_task(bench.flusher.run())
        bench.request(0, urgent=False)
        await asyncio.sleep(COMMIT_WINDOW_S * 0.9)
        assert bench.flusher.rounds == 0
        await asyncio.sleep(COMMIT_WINDOW_S * 0.2)
        assert bench.flusher.rounds == 1
        bench.request(0, urgent=False)
        await asyncio.sleep(0)
        bench.request(1, urgent=True)
        await asyncio.sleep(COMMIT_WINDOW_S * 0.1)
        assert bench.flusher.rounds == 2, "somebody waits now: no more gathering"
        bench.request(0, urgent=False, size=2 << 20)
        await asyncio.sleep(COMMIT_WINDOW_S * 0.1)
        assert bench.flusher.rounds == 3, "a megabyte is enough (S9)"
        task.cancel()

    simulate(scenario)


def test_a_failed_sync_is_final() -> None:
    """S7: it is never tried again, nobody is told that it worked, the driver hears of it."""

    async def scenario() -> None:
        bench = Bench()
        task = asyncio.get_running_loop().create_task(bench.flusher.run())
        bench.files[0].failure = OSError(5, "EIO")
        bench.request(0, urgent=True)
        bench.request(1, urgent=True)
        await asyncio.sleep(0.1)
        assert bench.flusher.failure is bench.files[0].failure and bench.failures == [bench.files[0].failure]
        assert [partition.durable for partition in bench.partitions[:2]] == [0, 0]
        assert all(partition.log.failed and not partition.log.done for partition in bench.partitions[:2])
        syncs = len(bench.trail)
        bench.files[0].failure = None
        bench.request(1, urgent=True)
        await asyncio.sleep(0.1)
        assert len(bench.trail) == syncs and bench.partitions[1].durable == 0
        assert task.done()

    simulate(scenario)


@pytest.mark.parametrize("urgent", [True, False])
def test_idle_means_idle(urgent: bool) -> None:
    async def scenario() -> None:
        bench = Bench()
        task = asyncio.get_running_loop().create_task(bench.flusher.run())
        await asyncio.sleep(10)
        assert bench.flusher.rounds == 0
        bench.request(0, urgent=urgent)
        await asyncio.sleep(10)
        assert bench.flusher.rounds == 1
        task.cancel()

    simulate(scenario)


def test_those_who_ask_again_together_share_one_sync() -> None:
    """Eight clients were answered by one sync; the first of them is back a few turns of the loop before the others."""

    async def scenario() -> None:
        bench = Bench()
        bench.runtime.sync_s = 0.010
        task = asyncio.get_running_loop().create_task(bench.flusher.run())
        for _ in range(8):
            bench.request(0, urgent=True)
        await asyncio.sleep(0.1)
        assert bench.flusher.rounds == 1
        for back in (1, 0, 3, 0, 0, 4):
            for _ in range(back):
                bench.request(0, urgent=True)
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        assert bench.flusher.rounds == 2, "not one for the first and another for the rest"
        bench.request(0, urgent=True)
        await asyncio.sleep(0.011)
        assert bench.flusher.rounds == 3, "who comes alone is not kept waiting for those who do not come"
        task.cancel()

    simulate(scenario)


def test_one_client_alone_is_never_kept_waiting() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.runtime.sync_s = 0.010
        task = asyncio.get_running_loop().create_task(bench.flusher.run())
        for number in range(5):
            bench.request(0, urgent=True)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert bench.flusher.sync_started_ms is not None, "under way at once"
            await asyncio.sleep(0.02)
            assert bench.flusher.rounds == number + 1
        task.cancel()

    simulate(scenario)


def test_a_round_in_a_hurry_does_not_hurry_the_next() -> None:
    async def scenario() -> None:
        bench = Bench()
        task = asyncio.get_running_loop().create_task(bench.flusher.run())
        bench.request(0, urgent=True, size=COMMIT_WINDOW_BYTES - 1)
        await asyncio.sleep(0.001)
        assert bench.flusher.rounds == 1
        bench.request(0, urgent=False, size=1)
        await asyncio.sleep(COMMIT_WINDOW_S * 0.9)
        assert bench.flusher.rounds == 1, "nobody waits for it, and it is little"
        bench.request(0, urgent=False, size=COMMIT_WINDOW_BYTES - 1)
        await asyncio.sleep(0.0001)
        assert bench.flusher.rounds == 2, "together they are enough"
        task.cancel()

    simulate(scenario)


def test_f16_what_raises_for_one_replica_takes_that_one_offline() -> None:
    async def scenario() -> None:
        bench = Bench()
        task = asyncio.get_running_loop().create_task(bench.flusher.run())
        bad, good = bench.partitions[:2]

        def raises(*given: Any) -> Any:
            raise RuntimeError("a bug")

        for rounds, (owner, name) in enumerate(((bad.log, "begin_flush"), (bad, "on_durable")), 1):
            before, bad.failed = getattr(owner, name), False
            setattr(owner, name, raises)
            bench.request(0, urgent=True)
            bench.request(1, urgent=True)
            await asyncio.sleep(0.1)
            assert bad.failed and not good.failed and good.durable == rounds
            assert len(bench.runtime.problems) == rounds
            setattr(owner, name, before)
        bad.failed, bench.files[0].sync = False, raises  # type: ignore[method-assign]
        bench.request(0, urgent=True)
        bench.request(1, urgent=True)
        await asyncio.sleep(0.1)
        assert bad.failed and good.failed and good.durable == 2, "what was synced of both is not known"
        assert bench.flusher.failure is None and bench.flusher.sync_started_ms is None
        task.cancel()

    simulate(scenario)


def test_r6_what_does_not_become_durable_is_trouble() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.runtime.sync_s = 20.0
        assert bench.flusher.trouble() is None
        bench.request(0, urgent=True)
        bench.request(0, urgent=True)
        await asyncio.sleep((STALLED_MS - 1) / 1000)
        bench.request(0, urgent=True)
        assert bench.flusher.trouble() is None
        await asyncio.sleep(0.001)
        assert "group commit" in str(bench.flusher.trouble()), "there is no flusher"
        task = asyncio.get_running_loop().create_task(bench.flusher.run())
        await asyncio.sleep(0.001)
        assert bench.flusher.trouble() is None
        await asyncio.sleep(STALLED_MS / 1000)
        assert f"sync has not come back for {STALLED_MS // 1000} s" in str(bench.flusher.trouble())
        await asyncio.sleep(20.0)
        assert bench.flusher.trouble() is None
        bench.runtime.sync_s, bench.files[0].failure = 0.0, OSError(5, "EIO")
        bench.request(0, urgent=True)
        await asyncio.sleep(0.1)
        assert "failed" in str(bench.flusher.trouble())
        task.cancel()

    simulate(scenario)


def test_files_of_one_round_are_synced_side_by_side() -> None:
    """Decision 0106."""

    async def scenario() -> None:
        bench = Bench()
        bench.runtime.sync_s = 0.010
        task = asyncio.get_running_loop().create_task(bench.flusher.run())
        for rounds, (size, at_once) in enumerate(((SIDE_BY_SIDE_BYTES // 8, SYNCS_AT_ONCE), (100, 1)), 1):
            bench.trail.clear()
            bench.runtime.most_under_way = 0
            for number in range(8):
                bench.request(number, urgent=True, size=size)
            await asyncio.sleep(1.0)
            assert bench.flusher.rounds == rounds and sorted(bench.trail) == list("abcdefgh"), "each once"
            assert bench.runtime.most_under_way == at_once, "little is not worth more than one thread"
            assert [partition.durable for partition in bench.partitions] == [rounds] * 8
        task.cancel()

    simulate(scenario)


def test_s7_nobody_hears_of_a_failure_while_other_syncs_are_under_way() -> None:
    """What hears of it closes files; and nobody is told that what the others synced is durable."""

    async def scenario() -> None:
        bench = Bench()
        bench.runtime.sync_s = 0.010
        task = asyncio.get_running_loop().create_task(bench.flusher.run())
        for number in range(3):
            bench.files[number].failure = OSError(5, f"EIO of {number}")
            bench.request(number, urgent=True, size=SIDE_BY_SIDE_BYTES)
        await asyncio.sleep(0.025)
        assert len(bench.trail) == 2 and bench.flusher.failure is None
        await asyncio.sleep(0.010)
        assert len(bench.trail) == 3 and bench.flusher.failure is bench.files[0].failure
        assert [partition.durable for partition in bench.partitions] == [0] * 8
        assert [len(partition.log.failed) for partition in bench.partitions] == [1, 1, 1, 0, 0, 0, 0, 0]
        assert task.done()

    simulate(scenario)


def test_what_a_follower_took_is_synced_without_waiting_for_more() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.runtime.sync_s = 0.010
        task = asyncio.get_running_loop().create_task(bench.flusher.run())
        for number in range(5):
            for partition in bench.partitions[:3]:
                bench.flusher.request(partition, 100, urgent=True, follows=True)  # type: ignore[arg-type]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert bench.flusher.sync_started_ms is not None, "under way at once"
            await asyncio.sleep(0.1)
            assert bench.flusher.rounds == number + 1
        task.cancel()

    simulate(scenario)
