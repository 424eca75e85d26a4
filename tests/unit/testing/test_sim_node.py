"""Processes: killed without a last word, paused, brought back; clocks that lie; the runtime they are given."""

from __future__ import annotations

import asyncio

import pytest

from headrace.broker.runtime import Runtime
from headrace.testing.sim_disk import DiskFault
from headrace.testing.sim_node import WALL_START_MS, SimNode, SimRuntime
from headrace.testing.simulation import Simulation, SimulationFailed


async def scribble(node: SimNode, runtime: SimRuntime) -> None:
    """Writes a line a second, and a last word that only a program that is asked to stop gets to write."""
    runtime.fs.make_dirs("/d")
    file = runtime.fs.open("/d/f", create=True)
    runtime.fs.sync_dir("/d")
    try:
        while True:
            file.append([b"tick\n"])
            await runtime.run_blocking(file.sync)
            await asyncio.sleep(1)
    finally:
        file.append([b"last word\n"])


def test_killing_runs_no_finally_and_keeps_the_cache() -> None:
    simulation = Simulation(1)
    node = simulation.node("n", scribble)

    async def scenario(simulation: Simulation) -> None:
        node.start()
        await asyncio.sleep(3.5)
        node.kill()
        await asyncio.sleep(10)
        assert node.disk.mount().read_file("/d/f") == b"tick\n" * 4
        node.start()
        await asyncio.sleep(1.5)
        node.kill()

    simulation.run(scenario)
    assert node.disk.mount().read_file("/d/f") == b"tick\n" * 6, "not even when the run is over"
    assert node.lives == 2


def test_a_program_that_is_cancelled_does_get_its_last_word() -> None:
    simulation = Simulation(1)
    node = simulation.node("n", scribble)

    async def scenario(simulation: Simulation) -> None:
        main = node.start()
        await asyncio.sleep(0.5)
        main.cancel()
        await asyncio.wait([main])

    simulation.run(scenario)
    assert node.disk.mount().read_file("/d/f") == b"tick\nlast word\n"


def test_a_paused_program_does_nothing_and_catches_up() -> None:
    simulation = Simulation(1)
    node = simulation.node("n", scribble)

    async def scenario(simulation: Simulation) -> None:
        node.start()
        await asyncio.sleep(2.5)
        node.pause()
        await asyncio.sleep(1000)
        assert node.disk.mount().read_file("/d/f") == b"tick\n" * 3
        node.resume()
        await asyncio.sleep(0.01)
        assert node.disk.mount().read_file("/d/f") == b"tick\n" * 4
        node.pause()
        node.kill()
        node.resume()

    simulation.run(scenario)


@pytest.mark.parametrize(
    "fault", [DiskFault.CRASH_BEFORE_APPEND, DiskFault.CRASH_BEFORE_SYNC, DiskFault.CRASH_AFTER_SYNC]
)
def test_a_crash_can_be_aimed_at_one_disk_operation(fault: DiskFault) -> None:
    simulation = Simulation(1)
    node = simulation.node("n", scribble)
    node.disk.arm(fault, "/d/f", skip=2)

    async def scenario(simulation: Simulation) -> None:
        node.start()
        await asyncio.sleep(10)
        assert not node.is_running

    simulation.run(scenario)
    expected = 2 if fault is DiskFault.CRASH_BEFORE_APPEND else 3
    assert node.disk.mount().read_file("/d/f") == b"tick\n" * expected


def test_a_program_that_fails_fails_the_run() -> None:
    async def fails(node: SimNode, runtime: SimRuntime) -> None:
        raise ValueError("oops")

    simulation = Simulation(9)
    node = simulation.node("n", fails)

    async def scenario(simulation: Simulation) -> None:
        node.start()
        await asyncio.sleep(1)
        assert not node.is_running

    with pytest.raises(SimulationFailed, match=r"seed 9.*oops"):
        simulation.run(scenario)


def test_clocks_can_be_wrong_in_every_way_but_monotonic_stays_monotonic() -> None:
    simulation = Simulation(1)

    async def idle(node: SimNode, runtime: SimRuntime) -> None:
        await asyncio.sleep(1e6)

    node = simulation.node("n", idle)

    async def scenario(simulation: Simulation) -> None:
        clock = node.clock
        assert clock.wall_ms() == WALL_START_MS
        start = clock.now_ms()
        await asyncio.sleep(10)
        assert (clock.now_ms() - start, clock.wall_ms() - WALL_START_MS) == (10_000, 10_000)
        clock.set_rate(2.0)
        await asyncio.sleep(10)
        assert clock.now_ms() - start == 30_000
        clock.jump_wall(-3_600_000)
        assert clock.now_ms() - start == 30_000
        assert clock.wall_ms() - WALL_START_MS == 30_000 - 3_600_000

    simulation.run(scenario)


def test_the_runtime_is_the_port() -> None:
    simulation = Simulation(1)
    seen: list[bytes] = []

    async def program(node: SimNode, runtime: SimRuntime) -> None:
        port: Runtime = runtime
        seen.append(port.random_bytes(8))
        with pytest.raises(ZeroDivisionError):
            await port.run_blocking(lambda: 1 // 0)
        task = port.spawn(asyncio.sleep(1e6), "idle")
        await runtime.close()
        assert task.cancelled()

    node = simulation.node("n", program)

    async def scenario(simulation: Simulation) -> None:
        for _ in range(2):
            await node.start()
            await asyncio.sleep(0)

    simulation.run(scenario)
    assert seen[0] != seen[1]


def test_s10_a_hung_disk_holds_blocking_calls_and_a_cancelled_waiter_does_not_undo_them() -> None:
    simulation = Simulation(1)
    done: list[float] = []

    async def program(node: SimNode, runtime: SimRuntime) -> None:
        loop = asyncio.get_running_loop()
        node.hang_disk(30)
        try:
            async with asyncio.timeout(5):
                await runtime.run_blocking(lambda: done.append(loop.time()))
        except TimeoutError:
            pass
        assert done == []
        start = loop.time()
        await asyncio.gather(*(runtime.run_blocking(lambda: done.append(loop.time())) for _ in range(20)))
        assert len(done) == 21
        assert done[0] - start > 24

    node = simulation.node("n", program)

    async def scenario(simulation: Simulation) -> None:
        await node.start()

    simulation.run(scenario)


def test_a_failed_spawned_task_fails_the_run() -> None:
    simulation = Simulation(1)

    async def fails() -> None:
        raise KeyError("lost")

    async def program(node: SimNode, runtime: SimRuntime) -> None:
        runtime.spawn(fails(), "worker")
        await asyncio.sleep(5)

    node = simulation.node("n", program)

    async def scenario(simulation: Simulation) -> None:
        await node.start()

    with pytest.raises(SimulationFailed, match="worker"):
        simulation.run(scenario)
