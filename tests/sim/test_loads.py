"""A coordinator that has to load again, on the shipped broker: nothing of its earlier load goes on (F4, F6), it loads until it
has (F18), it does not begin anew for each command (F83), and no live producer is told that it is dead (F84)."""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import ClusterClient, Consumer, Violation, _batch, _committed
from cluster_invariants import Place
from cluster_sim import BROKERS, PORT, TOPIC, SimCluster
from queue_stage import CONFIGS, Stage
from test_lease import CALM, soon, started
from transformer import Transformer

from headrace.broker import markers
from headrace.broker.partition import Partition
from headrace.broker.peer import PeerConnection
from headrace.broker.txn_client import TransactionClient
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID, TopicPartition
from headrace.testing.sim_disk import DiskFault
from headrace.testing.simulation import Simulation
from headrace.wire.api import ApiKey
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.wire.messages.end_txn import EndTxnRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)

TRANSACTIONS = Place("__transaction_state", 0)
ID = "payments"
Scenario = Callable[[SimCluster, ClusterClient], Coroutine[Any, Any, None]]


def on_three_brokers(scenario: Scenario, seed: int) -> None:
    cluster = SimCluster(seed, CALM)

    async def run(simulation: Simulation) -> None:
        await scenario(cluster, await started(cluster))

    cluster.simulation.run(run, limit_s=600.0)


async def ask(client: ClusterClient, key: int, version: int, request: object, identifier: str = ID) -> Any:
    def error_of(answer: Any) -> int:
        rows = getattr(answer, "results_by_topic_v3_and_below", None)
        return int(rows[0].results_by_partition[0].partition_error_code if rows else answer.error_code)

    answer, error = await client.ask_coordinator(identifier, 1, key, version, request, error_of, soon())
    assert error is ErrorKind.NONE, error
    return answer


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def leader_of(cluster: SimCluster, place: Place) -> int:
    return cluster.invariants.states()[place].leader


# -- F4 ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_f4_a_marker_of_an_earlier_load_does_not_end_the_next_transaction(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the marker of the first transaction is to be written, and again when the coordinator journals
    something. It loads anew and completes the transaction; the next one begins, in the same epoch. Then the delivery
    that was begun before the reload would try again."""
    monkeypatch.setattr(markers, "RETRY_S", 3.0)  # until then the second transaction has begun

    async def scenario(cluster: SimCluster, client: ClusterClient) -> None:
        got = await ask(client, ApiKey.INIT_PRODUCER_ID, 2, InitProducerIdRequest(ID, 60_000))
        producer = (got.producer_id, got.producer_epoch)
        added = AddPartitionsToTxnRequest([], ID, *producer, [AddPartitionsToTxnTopic(TOPIC, [0])])

        async def begin(sequence: int) -> None:
            await ask(client, ApiKey.ADD_PARTITIONS_TO_TXN, 1, added)
            batch = _batch([f"T{sequence + 1}"], *producer, sequence, transactional=True)
            await client.produce(0, batch, soon(), ID)

        await begin(0)
        data = cluster.nodes[leader_of(cluster, Place(TOPIC, 0))]
        journal = cluster.nodes[leader_of(cluster, TRANSACTIONS)]
        data.disk.arm(DiskFault.APPEND_ERROR, f"/data/topics/{TOPIC}", error=errno.ENOSPC)
        await ask(client, ApiKey.END_TXN, 1, EndTxnRequest(ID, *producer, True))
        await until(lambda: not data.disk._armed)
        journal.disk.arm(DiskFault.APPEND_ERROR, "/data/topics/__transaction_state", error=errno.ENOSPC)
        other = InitProducerIdRequest("other", 60_000)
        asked = asyncio.ensure_future(ask(client, ApiKey.INIT_PRODUCER_ID, 2, other, "other"))
        await until(lambda: not journal.disk._armed)
        log = data.service.broker.partitions[TOPIC, 0].log
        await until(lambda: log.producers.first_open_offset is None)
        await begin(1)
        await asyncio.sleep(5.0)
        assert log.producers.first_open_offset is not None, "nobody has ended the second transaction"
        await ask(client, ApiKey.END_TXN, 1, EndTxnRequest(ID, *producer, False))
        await asked
        await until(lambda: log.producers.first_open_offset is None)
        await client.produce(0, _batch(["after"], -1, -1, -1, transactional=False), soon())
        row = await client.fetch(0, 0)
        assert row is not None
        assert [value for _, value in _committed(row, 0)[0]] == ["T1", "after"]

    on_three_brokers(scenario, seed)


# -- F83, F18 ------------------------------------------------------------------------------------------------------------------


def test_f83_a_refused_write_does_not_make_a_coordinator_load_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """F18: and when the replicas are back, it serves."""
    reads: list[TopicPartition] = []
    read_all = Partition.read_all

    def counted(self: Partition, *given: Any) -> Any:
        reads.append(self.tp)
        return read_all(self, *given)

    monkeypatch.setattr(Partition, "read_all", counted)

    async def scenario(cluster: SimCluster, client: ClusterClient) -> None:
        await ask(client, ApiKey.INIT_PRODUCER_ID, 2, InitProducerIdRequest(ID, 60_000))
        leader = leader_of(cluster, TRANSACTIONS)
        others = [node for number, node in cluster.nodes.items() if number != leader]
        journal = cluster.nodes[leader].service.broker.partitions[TRANSACTIONS]
        for node in others:
            node.kill()
        await until(lambda: journal.isr == (leader,))
        connection = await PeerConnection.open(cluster.nodes[leader].address, PORT, "test")
        reads.clear()
        for number in range(50):
            request = InitProducerIdRequest(f"id{number}", 60_000)
            answer = await connection.call(ApiKey.INIT_PRODUCER_ID, 2, request, 5.0)
            assert ErrorKind(answer.error_code).info.retriable
        assert sum(place == TRANSACTIONS for place in reads) <= 1
        for node in others:
            node.start()
        await ask(client, ApiKey.INIT_PRODUCER_ID, 2, InitProducerIdRequest(ID, 60_000))

    on_three_brokers(scenario, 1)


# -- F84 -----------------------------------------------------------------------------------------------------------------------


def test_f84_a_broker_that_has_not_heard_of_the_coordinators_ends_no_producer() -> None:
    """The topic of the coordinators was made a moment ago, and the news of it are late here."""

    async def scenario(cluster: SimCluster, client: ClusterClient) -> None:
        node = cluster.nodes[leader_of(cluster, Place(TOPIC, 0))]
        assert node.service.services.transactions.number_of(ID) is None
        connection = await PeerConnection.open(node.address, PORT, "test")
        batch = bytearray(_batch(["T1"], 7, 0, 0, transactional=True))
        rows = [ProduceTopic(TOPIC, ZERO_UUID, [ProducePartition(0, batch)])]
        body = encode_produce_request(ProduceRequest(ID, -1, 3_000, rows), 9)
        frame, at = await connection.exchange(ApiKey.PRODUCE, 9, body, 5.0)
        error = ErrorKind(decode_produce_response(frame, at, 9).topics[0].partitions[0].error_code)
        assert error is not ErrorKind.NONE and error.info.retriable, error

    on_three_brokers(scenario, 1)


# -- F6 ------------------------------------------------------------------------------------------------------------------------


def test_f6_a_reload_moves_no_dead_letter_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """R60: the journal has no space for a moment, while one letter is on its way and others wait for their turn."""
    writing: list[str] = []
    produce = TransactionClient.produce

    async def slow(self: TransactionClient, *given: Any) -> int:
        writing.append(self._id)
        await asyncio.sleep(0.3)
        return await produce(self, *given)

    monkeypatch.setattr(TransactionClient, "produce", slow)

    async def play(stage: Stage) -> None:
        sqs = stage._sqs("client")
        for name in ("jobs-dead", "jobs"):
            await stage._kafka(name, "admin").create_topic(1, BROKERS, CONFIGS)
        await sqs.insist("CreateQueue", QueueName="jobs-dead")
        dead = '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:jobs-dead", "maxReceiveCount": 1}'
        await sqs.insist("CreateQueue", QueueName="jobs", Attributes={"RedrivePolicy": dead})
        for number in range(5):
            await sqs.insist("SendMessage", QueueUrl="jobs", MessageBody=f"m{number}")
        taken = 0
        while taken < 4:  # the fifth is left for later
            got = await sqs.insist(
                "ReceiveMessage", QueueUrl="jobs", MaxNumberOfMessages=4 - taken, VisibilityTimeout=1
            )
            taken += len(got.get("Messages", ()))
        await until(lambda: bool(writing))
        home = next(
            node
            for node in stage.nodes.values()
            if TopicPartition("jobs", 0) in node.service.services.queue_rooms.shards.hosted
        )
        home.disk.arm(DiskFault.APPEND_ERROR, "/data/topics/__queue.jobs@", error=errno.ENOSPC)
        await sqs.insist("ReceiveMessage", QueueUrl="jobs", MaxNumberOfMessages=1, VisibilityTimeout=600)
        assert not home.disk._armed, "the shard loaded again"
        await asyncio.sleep(30.0)
        letters: list[str] = []
        for _ in range(10):
            got = await sqs.insist(
                "ReceiveMessage", QueueUrl="jobs-dead", MaxNumberOfMessages=10, VisibilityTimeout=600
            )
            letters += [row["Body"] for row in got.get("Messages", ())]
        assert sorted(letters)[:4] == ["m0", "m1", "m2", "m3"] and len(letters) == len(set(letters))

    Stage(1, play).perform()


# -- consume, transform, produce ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("io_first", [False, True])
def test_f78_consume_transform_produce_gets_somewhere(io_first: bool) -> None:
    """What the simulation checks in every run that has it happens there at all (R50)."""
    cluster = SimCluster(1, replace(CALM, io_first=io_first))

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster)
        transformer = Transformer(client, cluster.history, cluster.dice.fork("x"), 80, 1, TOPIC)
        await transformer.run(lambda: transformer.committed >= 20, 0.01)
        last = Consumer(client, cluster.history, 900, 1)
        await last.read_past(cluster._ends())
        await transformer.check(last.values)
        assert len(last.values) == transformer.committed
        with pytest.raises(Violation):
            await transformer.check(last.values[1:])

    cluster.simulation.run(scenario, limit_s=600.0)
