"""R7, R15, R36 on virtual time: what a leader may do that slept, and what one may do whose coordinator is away."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import ClusterClient, _batch
from cluster_sim import BROKERS, PORT, TOPIC, Shape, SimCluster

from headrace.broker.peer import PeerConnection
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.core.limits import MIB
from headrace.testing.simulation import Simulation
from headrace.wire.api import ApiKey
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from headrace.wire.fetch_response import decode_fetch_response

CALM = Shape(partitions=1, min_isr=2, hostile=False)
FETCH = FetchRequest(
    -1, -1, 0, 1, MIB, 0, 0, -1, [FetchTopic(TOPIC, ZERO_UUID, [FetchPartition(0, -1, 0, -1, -1, MIB)])]
)


async def started(cluster: SimCluster) -> ClusterClient:
    for node in cluster.nodes.values():
        node.start()
    await cluster._brokers_live()
    addresses = [(node.address, PORT) for node in cluster.nodes.values()]
    client = ClusterClient(addresses, TOPIC, cluster.dice.fork("client"))
    await client.create_topic(1, BROKERS, {"min.insync.replicas": "2"})
    return client


async def fetch_error(connection: PeerConnection) -> ErrorKind:
    frame, at = await connection.exchange(ApiKey.FETCH, 11, [encode_fetch_request(FETCH, 11)], 60.0)
    return ErrorKind(decode_fetch_response(frame, at, 11).topics[0].partitions[0].error_code)


def soon() -> float:
    return asyncio.get_running_loop().time() + 30.0


def test_r7_a_leader_that_slept_answers_nobody_from_the_past() -> None:
    """The request waits in its socket while it sleeps, so it is the first thing that it sees when it wakes."""
    cluster = SimCluster(1, CALM)

    async def scenario(simulation: Simulation) -> ErrorKind:
        client = await started(cluster)
        await client.produce(0, _batch(["old"], -1, -1, -1, transactional=False), soon())
        sleeper = cluster.nodes[cluster._partition_states()[0].leader]
        connection = await PeerConnection.open(sleeper.address, PORT, "test")
        assert await fetch_error(connection) is ErrorKind.NONE
        sleeper.pause()
        asked = asyncio.get_running_loop().create_task(fetch_error(connection))
        await client.produce(0, _batch(["new"], -1, -1, -1, transactional=False), soon())
        assert cluster.nodes[cluster._partition_states()[0].leader] is not sleeper
        sleeper.resume()
        return await asked

    assert cluster.simulation.run(scenario) is ErrorKind.NOT_LEADER_OR_FOLLOWER


def test_r36_without_the_coordinator_acks_all_goes_on_and_readers_are_refused() -> None:
    cluster = SimCluster(2, CALM)

    async def scenario(simulation: Simulation) -> tuple[ErrorKind, ErrorKind]:
        client = await started(cluster)
        for coordinator in cluster.coordinators.values():
            coordinator.reachable = False
        leader = cluster.nodes[cluster._partition_states()[0].leader]
        for number in range(30):
            await client.produce(0, _batch([f"{number}"], -1, -1, -1, transactional=False), soon())
            await asyncio.sleep(1.0)
        connection = await PeerConnection.open(leader.address, PORT, "test")
        without = await fetch_error(connection)
        for coordinator in cluster.coordinators.values():
            coordinator.reachable = True
        await cluster._recovered()
        await asyncio.sleep(5.0)
        new_leader = cluster.nodes[cluster._partition_states()[0].leader]
        return without, await fetch_error(await PeerConnection.open(new_leader.address, PORT, "test"))

    without, again = cluster.simulation.run(scenario)
    assert without is ErrorKind.NOT_LEADER_OR_FOLLOWER
    assert again is ErrorKind.NONE
