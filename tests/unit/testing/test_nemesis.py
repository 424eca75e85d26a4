from __future__ import annotations

import asyncio

import pytest

from headrace.testing.dice import Dice
from headrace.testing.nemesis import Fault, FaultKind, Nemesis, draw_plan, shrink
from headrace.testing.sim_node import SimNode, SimRuntime
from headrace.testing.simulation import Simulation

NAMES = ("a", "b", "c", "d", "e")


async def chat(node: SimNode, runtime: SimRuntime) -> None:
    """Writes down ticks, and talks to every other node over and over."""
    runtime.fs.make_dirs("/d")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(100):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def ask(other: str) -> None:
        while True:
            try:
                async with asyncio.timeout(3):
                    reader, writer = await asyncio.open_connection(other, 80)
                    writer.write(b"hello")
                    await reader.readexactly(5)
                    writer.close()
            except (OSError, asyncio.IncompleteReadError):
                pass
            await asyncio.sleep(1)

    await asyncio.start_server(answer, "0.0.0.0", 80)
    async with asyncio.TaskGroup() as group:
        for name in NAMES:
            if name != node.name:
                group.create_task(ask(name))


def run(seed: int, plan: list[Fault] | None = None) -> tuple[str, Simulation]:
    simulation = Simulation(seed)
    for name in NAMES:
        simulation.node(name, chat)

    async def scenario(simulation: Simulation) -> None:
        for node in simulation.nodes.values():
            node.start()
        faults = plan if plan is not None else draw_plan(simulation.dice.fork("plan"), NAMES, seconds=25)
        await Nemesis(simulation).carry_out(faults)
        await asyncio.sleep(10)
        assert all(node.is_running for node in simulation.nodes.values())

    simulation.run(scenario)
    return simulation.trace_hash, simulation


@pytest.mark.parametrize("seed", range(4))
def test_faulty_runs_are_deterministic_and_end_calm(seed: int) -> None:
    first, simulation = run(seed)
    assert first == run(seed)[0]
    assert not any(simulation.network.link(one, two).is_cut for one in NAMES for two in NAMES)


@pytest.mark.parametrize("kind", FaultKind)
def test_every_kind_alone(kind: FaultKind) -> None:
    run(3, [Fault(2.0, 5.0, kind, ("a", "b"), 1.5), Fault(4.0, 1.0, kind, ("b",), 0.5)])


def test_plans_are_swarms() -> None:
    used = [
        frozenset(fault.kind for fault in draw_plan(Dice(seed), NAMES, seconds=600)) for seed in range(20)
    ]
    assert len(set(used)) > 10
    assert frozenset().union(*used) == frozenset(FaultKind)


def test_links_of_overlapping_faults() -> None:
    simulation = Simulation(1)
    for name in NAMES:
        simulation.node(name, chat)
    nemesis = Nemesis(simulation)
    cut = simulation.network.link
    one = Fault(0, 1, FaultKind.ISOLATE, ("a",), 1)
    two = Fault(0, 1, FaultKind.DEAFEN, ("b",), 1)
    nemesis._begin(one)
    nemesis._begin(two)
    assert cut("a", "c").is_cut and cut("c", "b").is_cut and not cut("b", "c").is_cut
    nemesis._end(one)
    assert not cut("a", "c").is_cut and cut("c", "b").is_cut
    nemesis._begin(Fault(0, 1, FaultKind.RING, ("a",), 1))
    assert {name for name in NAMES if cut("a", name).is_cut} == {"b", "c", "d"}, (
        "b is deaf, c and d are across"
    )


def test_shrink_finds_the_two_that_matter() -> None:
    plan = [Fault(float(at), 1.0, FaultKind.KILL, ("a",), 1.0) for at in range(23)]
    tries = 0

    def still_fails(candidate: list[Fault]) -> bool:
        nonlocal tries
        tries += 1
        moments = {fault.at_s for fault in candidate}
        return {5.0, 17.0} <= moments

    assert [fault.at_s for fault in shrink(plan, still_fails)] == [5.0, 17.0]
    assert tries < 60


def test_a_task_group_cancels_in_the_same_order_in_every_run() -> None:
    async def scenario(simulation: Simulation) -> list[int]:
        ended: list[int] = []

        async def child(number: int) -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append(number)

        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(child(number))
                await asyncio.sleep(1)
                raise ValueError
        return ended

    orders = []
    ballast = []
    for round_number in range(5):
        orders.append(Simulation(1).run(scenario))
        ballast.append([object() for _ in range(round_number * 1000)])  # other addresses the next time
    assert all(order == orders[0] for order in orders)
