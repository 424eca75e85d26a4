"""R47 on a whole broker: a Produce whose connection closes while the coordinator is asked is not carried out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.broker.peer import PeerConnection
from headrace.coordinator.memory import MemoryCoordinator
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.kafka.handlers import k00_produce
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.records.build import Record, build_batch
from headrace.testing.sim_node import SimNode, SimRuntime
from headrace.testing.simulation import Simulation
from headrace.wire.api import ApiKey
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.produce import ProducePartition, ProduceRequest, ProduceTopic

ASKING_S = 2.0


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_produce_nobody_waits_for_is_not_appended(gives_up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = k00_produce.verify

    async def slow_verify(*arguments: Any) -> Any:
        await asyncio.sleep(ASKING_S)
        return await verify(*arguments)

    monkeypatch.setattr(k00_produce, "verify", slow_verify)
    simulation = Simulation(1)
    world: dict[str, MemoryCoordinator] = {}

    async def broker(node: SimNode, runtime: SimRuntime) -> None:
        settings = Settings(host=node.address, data_dir="/data", node_id=1)
        service = Node(settings, runtime, world["coordinator"])
        await service.start()
        node.service = service
        await asyncio.get_running_loop().create_future()

    machine = simulation.node("b1", broker)

    async def scenario(simulation: Simulation) -> int:
        world["coordinator"] = MemoryCoordinator(machine.clock)
        machine.start()
        await asyncio.sleep(5)
        client = await PeerConnection.open(machine.address, 9092, "sim")
        topic = CreateTopicsRequest([CreatableTopic("t", 1, 1)])
        await client.call(ApiKey.CREATE_TOPICS, 5, topic, 5)
        await client.call(ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest("x", 1), 5)
        for _ in range(50):
            identity = await client.call(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest("x", 60_000), 5)
            if identity.error_code == ErrorKind.NONE:
                break
            await asyncio.sleep(0.1)
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic("t", [0])],
        )
        await client.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add, 5)
        batch = build_batch(
            [Record(None, b"v")],
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=0,
            transactional=True,
            wall_ms=0,
        )
        row = ProducePartition(0, batch)
        produce = ProduceRequest("x", -1, 5_000, [ProduceTopic("t", ZERO_UUID, [row])])
        sending = asyncio.ensure_future(client.call(ApiKey.PRODUCE, 9, produce, 30))
        await asyncio.sleep(ASKING_S / 2)
        if gives_up:
            client.close()
        await asyncio.wait({sending}, timeout=30)
        sending.exception()
        await asyncio.sleep(2 * ASKING_S)
        end: int = machine.service.broker.partitions["t", 0].log.end_offset
        return end

    assert simulation.run(scenario, limit_s=600.0) == (0 if gives_up else 1)
