"""flush=interval and flush=os (S9): nobody waits for the sync, and it comes all the same, so recovery stays short (S25)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from headrace.coordinator.memory import MemoryCoordinator
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.testing.sim_node import SimNode, SimRuntime
from headrace.testing.simulation import Simulation

sys.path.insert(0, str(Path(__file__).parent))
from sim_client import SimClient


@pytest.mark.parametrize(
    ("flush", "interval_ms", "synced_after_s"), [("interval", 400, 0.5), ("os", 400, 61.0)]
)
def test_lazy_syncs_come(flush: str, interval_ms: int, synced_after_s: float) -> None:
    simulation = Simulation(3)
    world: dict[str, MemoryCoordinator] = {}
    nodes: list[Node] = []

    async def broker(node: SimNode, runtime: SimRuntime) -> None:
        settings = Settings(
            host=node.address, data_dir="/data", node_id=1, flush=flush, flush_interval_ms=interval_ms  # type: ignore[arg-type]
        )  # fmt: skip
        service = Node(settings, runtime, world["coordinator"])
        await service.start()
        nodes.append(service)
        await asyncio.get_running_loop().create_future()

    machine = simulation.node("b1", broker)

    async def scenario(simulation: Simulation) -> None:
        world["coordinator"] = MemoryCoordinator(machine.clock)
        machine.start()
        client = SimClient(machine.address, 9092, idempotent=False)
        await client.create_topic("t")
        await client.send("t", b"first")
        log = nodes[0].broker.partitions["t", 0].log
        assert (log.end_offset, log.durable_end) == (1, 0), "acknowledged before it was synced"
        await asyncio.sleep(synced_after_s)
        assert log.durable_end == 1
        await client.send("t", b"second")
        await asyncio.sleep(synced_after_s)
        assert log.durable_end == 2, "and again"
        machine.cut_power()
        machine.start()
        assert list((await SimClient(machine.address, 9092).read_all("t")).values()) == [b"first", b"second"]

    simulation.run(scenario, limit_s=600.0)
