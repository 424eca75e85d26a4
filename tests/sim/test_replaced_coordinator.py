"""R7, R8, R42, R53, R56: a coordinator that was replaced and does not know it yet says nothing that a client would build on.

What simulation seed 400038 lost a transaction by, step by step: the coordinator of a transactional id is cut off from the
cluster's own coordinator; its partition is given to another broker, under its lease; there the next transaction begins; and
its EndTxn reaches the old one, which remembers the transaction before, committed by the same producer in the same epoch.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import ClusterClient, _batch
from cluster_invariants import Place
from cluster_sim import BROKERS, PORT, TOPIC, SimCluster
from queue_clients import Refused, SqsClient, Unknown
from queue_stage import CONFIGS, Stage
from test_lease import CALM, soon, started

from headrace.broker.load import Load
from headrace.broker.peer import PeerConnection, PeerLost
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.testing.simulation import Simulation
from headrace.wire.api import ApiKey
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.wire.messages.end_txn import EndTxnRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

ID = "payments"
TRANSACTIONS = Place("__transaction_state", 0)
OFFSETS = Place("__consumer_offsets", 0)


async def cut_off_and_replace(cluster: SimCluster, client: ClusterClient, place: Place) -> int:
    """Who led the partition, does not any more, and has not heard."""
    old = cluster.invariants.states()[place].leader
    cluster.coordinators[f"b{old}"].reachable = False
    others = [number for number in cluster.nodes if number != old]
    addresses, client._addresses = client._addresses, [(cluster.nodes[n].address, PORT) for n in others]
    while cluster.invariants.states()[place].leader not in others:
        await client.move(*place, [*others, old])
        await client.elect_preferred(*place)
        await asyncio.sleep(0.1)
    client._addresses = addresses
    return old


async def apart(cluster: SimCluster, client: ClusterClient, place: Place) -> None:
    """Who leads the topic is not who coordinates: only the coordinator is to be cut off."""
    topic = Place(TOPIC, 0)
    while (leader := cluster.invariants.states()[topic].leader) == cluster.invariants.states()[place].leader:
        await client.move(*topic, [*(number for number in cluster.nodes if number != leader), leader])
        await client.elect_preferred(*topic)
        await asyncio.sleep(0.1)
    client.forget_leader(0)


async def begin(client: ClusterClient, producer: tuple[int, int], sequence: int) -> None:
    added = AddPartitionsToTxnRequest([], ID, *producer, [AddPartitionsToTxnTopic(TOPIC, [0])])
    await client.ask_coordinator(
        ID, 1, ApiKey.ADD_PARTITIONS_TO_TXN, 1, added, lambda got: _row(got).partition_error_code, soon()
    )
    batch = _batch([f"{sequence}"], *producer, sequence, transactional=True)
    await client.produce(0, batch, soon(), ID)


def _row(answer: Any) -> Any:
    return answer.results_by_topic_v3_and_below[0].results_by_partition[0]


async def told(connection: PeerConnection, key: int, version: int, request: object) -> Any:
    """None: nothing."""
    try:
        return await connection.call(key, version, request, 3.0)
    except PeerLost:
        return None


def end_the_second(seed: int, wait_s: float) -> ErrorKind | None:
    """What the old coordinator answers to the EndTxn of a transaction that it has never heard of."""
    cluster = SimCluster(seed, CALM)

    async def scenario(simulation: Simulation) -> ErrorKind | None:
        client = await started(cluster)
        made, error = await client.ask_coordinator(
            ID, 1, ApiKey.INIT_PRODUCER_ID, 2, InitProducerIdRequest(ID, 60_000),
            lambda got: got.error_code, soon(),
        )  # fmt: skip
        assert error is ErrorKind.NONE
        producer = (made.producer_id, made.producer_epoch)
        ended = EndTxnRequest(ID, *producer, True)
        await begin(client, producer, 0)
        await client.ask_coordinator(
            ID, 1, ApiKey.END_TXN, 1, ended, lambda got: got.error_code, soon()
        )  # fmt: skip
        await asyncio.sleep(1.0)
        await apart(cluster, client, TRANSACTIONS)
        old = await cut_off_and_replace(cluster, client, TRANSACTIONS)
        node = cluster.nodes[old]
        connection = await PeerConnection.open(node.address, PORT, "late")
        # From here on the client finds its coordinator by asking those that know.
        client._addresses = [(other.address, PORT) for other in cluster.nodes.values() if other is not node]
        await begin(client, producer, 1)
        await asyncio.sleep(wait_s)
        answer = await told(connection, ApiKey.END_TXN, 1, ended)
        return None if answer is None else ErrorKind(answer.error_code)

    return cluster.simulation.run(scenario)


LEASE_GONE_S = 10.0


@pytest.mark.parametrize("wait_s", [0.0, LEASE_GONE_S], ids=["under its lease", "without its lease"])
def test_r42_a_replaced_coordinator_claims_no_commit(wait_s: float) -> None:
    assert end_the_second(1, wait_s) is not ErrorKind.NONE


@pytest.mark.parametrize("wait_s", [0.0, LEASE_GONE_S], ids=["under its lease", "without its lease"])
def test_r42_without_the_barrier_it_claims_one(wait_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: so that the test above is known to look in the right place."""
    monkeypatch.setattr(Load, "_must_ask_followers", lambda *_: False)
    assert end_the_second(1, wait_s) is ErrorKind.NONE


def look_up_offsets(seed: int) -> int | None:
    """What a replaced group coordinator says was committed, after 7 was committed at its successor."""
    cluster = SimCluster(seed, CALM)

    async def scenario(simulation: Simulation) -> int | None:
        client = await started(cluster)

        def commit(offset: int) -> OffsetCommitRequest:
            rows = [OffsetCommitRequestPartition(0, offset, -1, "")]
            return OffsetCommitRequest(
                "g", -1, "", None, -1, [OffsetCommitRequestTopic(TOPIC, ZERO_UUID, rows)]
            )

        error_of: Callable[[Any], int] = lambda got: got.topics[0].partitions[0].error_code  # noqa: E731
        await client.ask_coordinator("g", 0, ApiKey.OFFSET_COMMIT, 7, commit(3), error_of, soon())
        old = await cut_off_and_replace(cluster, client, OFFSETS)
        node = cluster.nodes[old]
        connection = await PeerConnection.open(node.address, PORT, "late")
        client._addresses = [(other.address, PORT) for other in cluster.nodes.values() if other is not node]
        await client.ask_coordinator("g", 0, ApiKey.OFFSET_COMMIT, 7, commit(7), error_of, soon())
        question = OffsetFetchRequest("g", [OffsetFetchRequestTopic(TOPIC, [0])], [], True)
        answer = await told(connection, ApiKey.OFFSET_FETCH, 7, question)
        if answer is None or answer.error_code or answer.topics[0].partitions[0].error_code:
            return None
        return int(answer.topics[0].partitions[0].committed_offset)

    return cluster.simulation.run(scenario)


def test_r53_a_replaced_coordinator_sends_no_group_back() -> None:
    assert look_up_offsets(2) in (None, 7)


def test_r53_without_the_barrier_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Load, "_must_ask_followers", lambda *_: False)
    assert look_up_offsets(2) == 3


def delete_at_the_old_home(seed: int) -> tuple[bool, bool]:
    """Whether a queue's replaced home says that it has deleted a message that its successor has handed out, and whether the message
    comes again nevertheless (seed 10200038: while a queue's journal moved)."""
    seen: list[bool] = []

    async def play(stage: Stage) -> None:
        kafka, sqs = stage._kafka("jobs", "admin"), stage._sqs("admin")
        await kafka.create_topic(1, BROKERS, CONFIGS)
        await sqs.insist("CreateQueue", QueueName="jobs", Attributes={"VisibilityTimeout": "5"})
        await sqs.insist("SendMessage", QueueUrl="jobs", MessageBody="m")
        old = stage.nodes[await cut_off_and_replace(stage, kafka, Place("__queue.jobs", 0))]
        others = [node.address for node in stage.nodes.values() if node is not old]
        found: list[dict[str, Any]] = []
        while not found:
            answer = await SqsClient(others[:1], stage.dice.fork("new")).insist(
                "ReceiveMessage", QueueUrl="jobs", WaitTimeSeconds=1
            )
            found = answer.get("Messages", [])
        try:
            await SqsClient([old.address], stage.dice.fork("old")).ask(
                "DeleteMessage", QueueUrl="jobs", ReceiptHandle=found[0]["ReceiptHandle"]
            )
            seen.append(True)
        except (Refused, Unknown):
            seen.append(False)
        again = await SqsClient(others[1:], stage.dice.fork("again")).insist(
            "ReceiveMessage", QueueUrl="jobs", WaitTimeSeconds=7, timeout_s=20.0
        )
        seen.append(bool(again.get("Messages")))

    Stage(seed, play).perform()
    return seen[0], seen[1]


def test_r56_a_replaced_home_of_a_queue_does_not_say_that_it_has_deleted() -> None:
    assert delete_at_the_old_home(1) == (False, True)


def test_r56_without_the_barrier_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Load, "_must_ask_followers", lambda *_: False)
    assert delete_at_the_old_home(1) == (True, True)
