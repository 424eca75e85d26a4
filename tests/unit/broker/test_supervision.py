"""The supervisor: started again with pauses that grow, counted, given up where the policy says so; never silent (F17)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.broker.supervision import RESTART, Policy, Supervised, Supervisor
from headrace.testing.simulation import Simulation


class Clock:
    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return self.now_ms()


class World:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.given_up: list[Supervised] = []
        self.starts: list[float] = []
        self.supervisor = Supervisor(Clock(), self._spawn, lambda where, problem: self.told.append(where))
        self.supervisor.on_given_up = self.given_up.append

    def _spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(coro, name=name)

    async def fails(self) -> None:
        self.starts.append(asyncio.get_running_loop().time())
        raise KeyError("a bug")


def simulate(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def run(_: Simulation) -> None:
        await scenario(World())

    Simulation(1).run(run, limit_s=10_000.0)


def test_f17_a_task_that_fails_is_started_again_with_pauses_that_grow() -> None:
    async def scenario(world: World) -> None:
        task = world.supervisor.supervise("t", world.fails)
        await asyncio.sleep(120.0)
        pauses = [later - earlier for earlier, later in zip(world.starts, world.starts[1:], strict=False)]
        assert [round(pause, 3) for pause in pauses[:4]] == [0.1, 0.2, 0.4, 0.8]
        assert round(max(pauses), 3) == RESTART.longest_pause_s
        assert task.failures == len(world.starts) == len(world.told) == world.supervisor.surprises["t"].count
        assert "KeyError" in (task.trouble(Clock().now_ms()) or "")
        assert not world.given_up
        task.cancel()

    simulate(scenario)


def test_f17_who_ran_calmly_begins_anew() -> None:
    async def scenario(world: World) -> None:
        async def seldom() -> None:
            world.starts.append(asyncio.get_running_loop().time())
            await asyncio.sleep(61.0)
            raise KeyError("a bug")

        task = world.supervisor.supervise("t", seldom, Policy(last_straw=2))
        await asyncio.sleep(1_000.0)
        assert task.failures > 10 and task.in_a_row == 1 and not world.given_up
        assert task.trouble(Clock().now_ms()) is None, "it has settled"
        task.cancel()

    simulate(scenario)


def test_f17_the_last_straw_is_told_and_nothing_is_started_any_more() -> None:
    async def scenario(world: World) -> None:
        task = world.supervisor.supervise("t", world.fails, Policy(last_straw=3))
        await asyncio.sleep(100.0)
        assert world.given_up == [task] and len(world.starts) == 3
        assert "given up" in (task.trouble(Clock().now_ms()) or "")
        assert list(world.supervisor.troubles(vital=True)) and not list(
            world.supervisor.troubles(vital=False)
        )

    simulate(scenario)


def test_f17_a_return_and_a_cancelled_future_are_failures_too() -> None:
    async def scenario(world: World) -> None:
        async def returns() -> None:
            return None

        async def waits_in_vain() -> None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(future.cancel)
            await future

        first = world.supervisor.supervise("returns", returns)
        second = world.supervisor.supervise("waits", waits_in_vain)
        third = world.supervisor.supervise("may", returns, RESTART._replace(may_return=True))
        await asyncio.sleep(1.0)
        assert first.failures > 1 and second.failures > 1
        assert third.has_ended and third.failures == 0 and third not in world.supervisor.tasks
        first.cancel()
        second.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert first.done() and second.done() and not world.supervisor.tasks

    simulate(scenario)
