"""On a whole broker: what becomes of a request whose connection closes (R47), or whose transaction ends (F84), while the coordinator is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from headrace.broker.peer import PeerConnection
from headrace.broker.transactions import Transactions
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
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.produce import ProducePartition, ProduceRequest, ProduceTopic

T = TypeVar("T")
ASKING_S = 2.0


def alone(story: Callable[[PeerConnection, SimNode], Coroutine[Any, Any, T]]) -> T:
    """One broker with one topic `t`, and a client."""
    simulation = Simulation(1)
    world: dict[str, MemoryCoordinator] = {}

    async def broker(node: SimNode, runtime: SimRuntime) -> None:
        settings = Settings(host=node.address, data_dir="/data", node_id=1)
        service = Node(settings, runtime, world["coordinator"])
        await service.start()
        node.service = service
        await asyncio.get_running_loop().create_future()

    machine = simulation.node("b1", broker)

    async def scenario(simulation: Simulation) -> T:
        world["coordinator"] = MemoryCoordinator(machine.clock)
        machine.start()
        await asyncio.sleep(5)
        client = await PeerConnection.open(machine.address, 9092, "sim")
        await client.call(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 5)
        return await story(client, machine)

    return simulation.run(scenario, limit_s=600.0)


async def begun(client: PeerConnection, name: str) -> tuple[int, int]:
    """The producer's id and epoch."""
    await client.call(ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest(name, 1), 5)
    while True:
        identity = await client.call(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(name, 60_000), 5)
        if identity.error_code == ErrorKind.NONE:
            return identity.producer_id, identity.producer_epoch
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_produce_nobody_waits_for_is_not_appended(gives_up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = k00_produce.verify

    async def slow_verify(*arguments: Any) -> Any:
        await asyncio.sleep(ASKING_S)
        return await verify(*arguments)

    monkeypatch.setattr(k00_produce, "verify", slow_verify)

    async def scenario(client: PeerConnection, machine: SimNode) -> int:
        producer_id, epoch = await begun(client, "x")
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic("t", [0])],
        )
        await client.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add, 5)
        batch = build_batch(
            [Record(None, b"v")],
            producer_id=producer_id,
            producer_epoch=epoch,
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

    assert alone(scenario) == (0 if gives_up else 1)


def test_f84_an_offset_whose_transaction_ends_meanwhile_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What simulation seed 21000336 found: the transaction's time was up while its answer was on the way. A client repeats what is
    answered with "loading", and then hears that its producer was fenced; INVALID_TXN_STATE is the end of a Java client."""
    confirm = Transactions.confirm
    asked = asyncio.Event()

    async def slow_confirm(self: Transactions, *arguments: Any, **named: Any) -> ErrorKind:
        answer = await confirm(self, *arguments, **named)
        asked.set()
        await asyncio.sleep(ASKING_S)
        return answer

    monkeypatch.setattr(Transactions, "confirm", slow_confirm)

    async def scenario(client: PeerConnection, machine: SimNode) -> None:
        identity = await begun(client, "x")
        await client.call(ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest("g", 0), 5)
        added = AddOffsetsToTxnRequest("x", *identity, "g")
        assert (await client.call(ApiKey.ADD_OFFSETS_TO_TXN, 1, added, 5)).error_code == 0
        rows = [TxnOffsetCommitRequestPartition(0, 7, -1, "")]
        commit = TxnOffsetCommitRequest("x", "g", *identity, topics=[TxnOffsetCommitRequestTopic("t", rows)])

        async def committed() -> ErrorKind:
            answer = await client.call(ApiKey.TXN_OFFSET_COMMIT, 2, commit, 30)
            return ErrorKind(answer.topics[0].partitions[0].error_code)

        first = asyncio.ensure_future(committed())
        await asked.wait()
        other = await PeerConnection.open(machine.address, 9092, "another life")
        assert await begun(other, "x") > identity, "which aborts what was open"
        assert (await first).info.retriable
        assert await committed() is ErrorKind.INVALID_PRODUCER_EPOCH

    alone(scenario)
