"""S7 on virtual time: a sync fails once and the next one would say OK. The broker must not believe it.

The simulated disk drops the dirty pages at the failed sync, as kernels do. So a broker that tried again would acknowledge
what is gone; this one stops, and a restart brings back exactly what it had acknowledged.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from headrace.broker.peer import PeerLost
from headrace.coordinator.memory import MemoryCoordinator
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.records.build import Record, build_batch
from headrace.testing.sim_disk import DiskFault
from headrace.testing.sim_node import SimNode, SimRuntime
from headrace.testing.simulation import Simulation
from headrace.wire.api import ApiKey
from headrace.wire.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)

sys.path.insert(0, str(Path(__file__).parent))
from sim_client import SimClient


async def produce_once(client: SimClient, topic: str, value: bytes) -> ErrorKind | None:
    """One try with acks=all: what was answered, or None when the connection went away."""
    batch = build_batch([Record(None, value)], wall_ms=1_750_000_000_000)
    row = ProduceTopic(topic, ZERO_UUID, [ProducePartition(0, bytearray(batch))])
    request = encode_produce_request(ProduceRequest(None, -1, 1_000, [row]), 9)
    try:
        connection = await client._connected()
        frame, at = await connection.exchange(ApiKey.PRODUCE, 9, request, 5.0)
    except PeerLost:
        client._connection = None
        return None
    return ErrorKind(decode_produce_response(frame, at, 9).topics[0].partitions[0].error_code)


@pytest.mark.parametrize("seed", range(8))
def test_a_failed_sync_is_never_believed_again(seed: int) -> None:
    simulation = Simulation(seed)
    world: dict[str, MemoryCoordinator] = {}
    nodes: list[Node] = []

    async def broker(node: SimNode, runtime: SimRuntime) -> None:
        settings = Settings(host=node.address, data_dir="/data", node_id=1)
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
        for number in range(10):
            await client.send("t", f"v{number}".encode())
        machine.disk.arm(DiskFault.SYNC_ERROR, "/data/topics", skip=seed % 6)
        answers = [await produce_once(client, "t", f"w{number}".encode()) for number in range(20)]
        fine = answers.count(ErrorKind.NONE)
        assert answers[:fine] == [ErrorKind.NONE] * fine, "once it failed, nothing is acknowledged any more"
        assert fine < 20
        assert nodes[0].broker.flusher.failure is not None
        assert any(trouble.startswith("disk: ") for trouble in nodes[0].health.troubles()), "/readyz says so"
        machine.cut_power()
        machine.start()
        found = await SimClient(machine.address, 9092).read_all("t")
        values = [found[offset] for offset in sorted(found)]
        expected = [f"v{number}".encode() for number in range(10)] + [
            f"w{number}".encode() for number in range(fine)
        ]
        assert values[: len(expected)] == expected, "what was acknowledged is there, in order"

    simulation.run(scenario, limit_s=600.0)
