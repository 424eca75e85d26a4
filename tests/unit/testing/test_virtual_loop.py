"""The virtual loop: time, order, determinism, and the walls around it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest

from headrace.testing.dice import Dice
from headrace.testing.simulation import Simulation, SimulationFailed
from headrace.testing.virtual_loop import (
    EscapedSimulation,
    SimulationDeadlock,
    SimulationLivelock,
    VirtualTimeLoop,
)


def test_an_hour_of_timers_takes_no_time_and_keeps_its_order() -> None:
    async def scenario(simulation: Simulation) -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        start = loop.time()
        seen: list[tuple[str, float]] = []

        async def after(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, round(loop.time() - start, 6)))

        await asyncio.gather(after("c", 3600), after("a", 0.001), after("b", 5))
        return seen

    assert Simulation(1).run(scenario) == [("a", 0.001), ("b", 5.0), ("c", 3600.0)]


def test_timeouts_work_on_virtual_time() -> None:
    async def scenario(simulation: Simulation) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()

    Simulation(1).run(scenario)


def test_the_order_of_ready_tasks_depends_on_the_seed_and_on_nothing_else() -> None:
    async def scenario(simulation: Simulation) -> str:
        seen: list[str] = []

        async def note(name: str) -> None:
            seen.append(name)

        await asyncio.gather(*(note(name) for name in "abcdefgh"))
        return "".join(seen)

    orders = {seed: Simulation(seed).run(scenario) for seed in range(10)}
    assert orders == {seed: Simulation(seed).run(scenario) for seed in range(10)}
    assert len(set(orders.values())) > 5
    assert Simulation(3, shuffle=False).run(scenario) == "abcdefgh"


def test_plain_callbacks_keep_their_order() -> None:
    async def scenario(simulation: Simulation) -> list[int]:
        seen: list[int] = []
        for number in range(20):
            asyncio.get_running_loop().call_soon(seen.append, number)
        await asyncio.sleep(1)
        return seen

    for seed in range(5):
        assert Simulation(seed).run(scenario) == list(range(20))


def test_waiting_for_what_cannot_happen_is_a_deadlock() -> None:
    loop = VirtualTimeLoop(Dice(1))
    try:
        with pytest.raises(SimulationDeadlock, match="forever"):
            loop.run_until_complete(loop.create_task(_wait(loop), name="forever"))
    finally:
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()


async def _wait(loop: VirtualTimeLoop) -> None:
    await loop.create_future()


def test_a_busy_loop_is_a_livelock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.testing.virtual_loop.MAX_STEPS_AT_ONE_TIME", 1000)

    async def scenario(simulation: Simulation) -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(SimulationLivelock):
        Simulation(1).run(scenario)


def test_a_run_without_end_is_stopped() -> None:
    async def scenario(simulation: Simulation) -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(1)

    with pytest.raises(SimulationFailed, match="seed 4: not finished after 60"):
        Simulation(4).run(scenario, limit_s=60)


def test_a_failed_callback_or_task_fails_the_run() -> None:
    async def scenario(simulation: Simulation) -> None:
        asyncio.get_running_loop().call_soon(int, "x")
        await asyncio.sleep(1)

    with pytest.raises(SimulationFailed, match=r"seed 2.*ValueError"):
        Simulation(2).run(scenario)


def test_a_broken_invariant_ends_the_run_at_once() -> None:
    simulation = Simulation(1)
    counted: list[int] = []

    def at_most_three() -> None:
        assert len(counted) <= 3

    simulation.invariant(at_most_three)

    async def scenario(simulation: Simulation) -> None:
        for number in range(100):
            counted.append(number)
            await asyncio.sleep(1)

    with pytest.raises(AssertionError):
        simulation.run(scenario)
    assert len(counted) == 4


@pytest.mark.parametrize(
    "escape",
    [
        lambda loop: loop.run_in_executor(None, print),
        lambda loop: asyncio.to_thread(print),
        lambda loop: loop.add_signal_handler(2, print),
        lambda loop: loop.add_reader(0, print),
        lambda loop: loop.getaddrinfo("localhost", 80),
        lambda loop: asyncio.create_subprocess_exec("true"),
        lambda loop: loop.create_datagram_endpoint(asyncio.DatagramProtocol),
        lambda loop: asyncio.open_unix_connection("/tmp/x"),
        lambda loop: loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=object()),
        lambda loop: loop.create_connection(asyncio.Protocol, "127.0.0.1", 1, ssl=object()),
    ],
)
def test_the_real_world_is_out_of_reach(escape: Any) -> None:
    async def scenario(simulation: Simulation) -> None:
        with pytest.raises(EscapedSimulation):
            result = escape(asyncio.get_running_loop())
            if result is not None:
                await result

    Simulation(1).run(scenario)


def test_a_bare_loop_has_no_network() -> None:
    loop = VirtualTimeLoop(Dice(1))
    with pytest.raises(EscapedSimulation):
        loop.run_until_complete(loop.create_server(asyncio.Protocol, "127.0.0.1", 0))
    loop.close()


def test_many_cancelled_timers_do_not_pile_up() -> None:
    async def scenario(simulation: Simulation) -> int:
        for _ in range(5000):
            async with asyncio.timeout(3600):
                await asyncio.sleep(0.001)
        return len(simulation.loop._scheduled)

    assert Simulation(1).run(scenario) < 500


def test_dice_forks_are_independent_and_stable() -> None:
    one, two = Dice(7), Dice(7)
    one.fork("network").random_bytes(1000)
    assert one.fork("disk").random_bytes(8) == two.fork("disk").random_bytes(8)
    assert Dice(7).fork("a").random_bytes(8) != Dice(7).fork("b").random_bytes(8)
    assert Dice(7).random_bytes(8) != Dice(8).random_bytes(8)


def test_sometimes_is_a_swarm() -> None:
    used = {seed: any(Simulation(seed).sometimes("x", 1.0) for _ in range(3)) for seed in range(40)}
    assert 5 < sum(used.values()) < 35, "some seeds have the feature, some do not"


_SCRIPT = """
import sys
sys.path.insert(0, {path!r})
from sim_echo_world import run_echo_world
print([run_echo_world(seed).trace_hash for seed in (1, 2, 3)])
"""


def test_the_same_seed_is_the_same_run_whatever_the_hash_seed() -> None:
    here = os.path.dirname(__file__)
    outputs = set()
    for hash_seed in ("0", "1", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT.format(path=here)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
