"""Receivers that wait for a queue on several brokers: few questions while nothing happens, none of them lost. Virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.broker.queueing.routing.long_polls import PAUSE_S, REST_S, WAIT_MS, LongPolls
from headrace.broker.queueing.routing.peer_calls import AskArrivals
from headrace.core.errors import ErrorKind, HeadraceError


class Peer:
    """Another broker: answers when its number is not the one that was seen, or the time is up."""

    def __init__(self) -> None:
        self.number = 0
        self.asked: list[AskArrivals] = []
        self.is_down = False
        self._changed = asyncio.Event()

    async def ask(self, broker_id: int, question: AskArrivals, timeout_s: float) -> int:
        self.asked.append(question)
        if self.is_down:
            raise HeadraceError(ErrorKind.NOT_COORDINATOR)
        if question.seen == self.number:
            try:
                async with asyncio.timeout(question.wait_ms / 1000):
                    await self._changed.wait()
            except TimeoutError:
                pass
        return self.number

    def happens(self) -> None:
        self.number += 1
        self._changed.set()
        self._changed = asyncio.Event()


class Bench:
    def __init__(self) -> None:
        self.peer = Peer()
        self.news = LongPolls(self, self.peer)  # type: ignore[arg-type]
        self.woken: list[str] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coro)
        self._tasks.add(task)
        return task

    def receiver(
        self, name: str, wait_ms: int = 20_000, *, greedy: bool = False, others: tuple[int, ...] = (2,)
    ) -> asyncio.Task[Any]:
        """Waits once; a greedy one finds what it is woken for and lets the next one know."""

        async def wait() -> None:
            began = asyncio.get_running_loop().time()
            await self.news.wait("q", others, asyncio.Event(), wait_ms)
            if asyncio.get_running_loop().time() - began < wait_ms / 1000:
                self.woken.append(name)
                if greedy:
                    self.news.wake_one("q")

        return self.spawn(wait(), name)


def simulate(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    from headrace.testing.simulation import Simulation

    async def run(_: Any) -> None:
        await scenario(Bench())

    Simulation(1).run(run, limit_s=120.0)


async def settle(bench: Bench) -> None:
    """The first answer comes at once and wakes one, who finds nothing and waits again."""
    first = bench.receiver("first")
    await first
    assert bench.woken == ["first"]
    bench.woken.clear()
    await asyncio.sleep(REST_S)


def test_idle_receivers_share_one_question_at_a_time() -> None:
    async def scenario(bench: Bench) -> None:
        receivers = [bench.receiver(f"r{number}", 20_000) for number in range(100)]
        await asyncio.gather(*receivers)
        assert len(bench.peer.asked) <= 2 + 20_000 // WAIT_MS, "not twice a second for each"
        assert len(bench.woken) == 1, "only by the first answer"

    simulate(scenario)


def test_news_from_elsewhere_wake_one() -> None:
    async def scenario(bench: Bench) -> None:
        for number in range(4):
            bench.receiver(f"r{number}")
        await asyncio.sleep(REST_S * 2)
        bench.woken.clear()
        bench.peer.happens()
        await asyncio.sleep(REST_S * 2)
        assert len(bench.woken) == 1

    simulate(scenario)


def test_who_finds_something_wakes_the_next() -> None:
    async def scenario(bench: Bench) -> None:
        for name in "abcd":
            bench.receiver(name, greedy=name in "ab", others=())
            await asyncio.sleep(0.001)
        bench.news.wake_one("q")
        await asyncio.sleep(0.001)
        assert bench.woken == ["a", "b", "c"], "until somebody finds nothing"

    simulate(scenario)


def test_what_happens_between_two_questions_is_not_missed() -> None:
    async def scenario(bench: Bench) -> None:
        await settle(bench)
        bench.peer.happens()  # while nobody asks
        await bench.receiver("late")
        assert bench.woken == ["late"]

    simulate(scenario)


def test_something_here_wakes_all() -> None:
    async def scenario(bench: Bench) -> None:
        await settle(bench)
        receivers = [bench.receiver("a"), bench.receiver("b")]
        await asyncio.sleep(0.001)
        bench.news.wake_all("q")
        await asyncio.gather(*receivers)
        assert sorted(bench.woken) == ["a", "b"]
        arrived = asyncio.Event()
        arrived.set()
        await bench.news.wait("q", [2], arrived, 60_000)  # it came after the look and before the wait

    simulate(scenario)


def test_one_that_is_cancelled_when_it_is_woken_passes_it_on() -> None:
    async def scenario(bench: Bench) -> None:
        gone = bench.receiver("gone", others=())
        await asyncio.sleep(0.001)
        bench.receiver("next", others=())
        await asyncio.sleep(0.001)
        bench.news.wake_one("q")
        gone.cancel()
        await asyncio.sleep(0.001)
        assert bench.woken == ["next"]

    simulate(scenario)


def test_a_broker_that_is_away_is_asked_again_after_a_pause_and_nobody_asks_when_nobody_waits() -> None:
    async def scenario(bench: Bench) -> None:
        bench.peer.is_down = True
        await bench.receiver("r", 3_000)
        assert len(bench.peer.asked) <= 1 + 3.0 / PAUSE_S
        bench.peer.is_down = False
        asked = len(bench.peer.asked)
        await asyncio.sleep(30)
        assert len(bench.peer.asked) <= asked + 1

    simulate(scenario)


def test_who_was_woken_for_nothing_and_waits_again_hears_at_once() -> None:
    """The next question goes out when somebody is back to wait, not some time later."""

    async def scenario(bench: Bench) -> None:
        await settle(bench)
        loop = asyncio.get_running_loop()
        waiting = bench.receiver("a")
        await asyncio.sleep(REST_S * 2)
        for _ in range(20):
            bench.peer.happens()
            began = loop.time()
            await waiting
            waiting = bench.receiver("a")  # looks, finds nothing, and is back
            bench.peer.happens()
            await waiting
            assert loop.time() - began < REST_S / 2
            waiting = bench.receiver("a")
        waiting.cancel()

    simulate(scenario)
