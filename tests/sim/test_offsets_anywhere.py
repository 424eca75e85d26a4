"""Decision 0083: a group's offsets are told at any broker, whoever coordinates it: librdkafka takes NOT_COORDINATOR here for a last word."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import GROUP, ClusterClient, OffsetKeeper
from cluster_invariants import Place
from cluster_sim import PORT, TOPIC, SimCluster
from test_lease import CALM, soon, started
from test_loads import leader_of

from headrace.broker.peer import PeerLost
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.testing.simulation import Simulation
from headrace.wire.api import ApiKey
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

OFFSETS = Place("__consumer_offsets", 0)


async def told(
    client: ClusterClient, address: str, version: int, topic_id: bytes = ZERO_UUID
) -> tuple[ErrorKind, int]:
    """What one broker says of partition 0, and nobody else."""
    if version < 8:
        request = OffsetFetchRequest(GROUP, [OffsetFetchRequestTopic(TOPIC, [0])])
    else:
        name = TOPIC if version < 10 else ""
        group = OffsetFetchRequestGroup(GROUP, topics=[OffsetFetchRequestTopics(name, topic_id, [0])])
        request = OffsetFetchRequest(groups=[group])
    connection = await client.connection((address, PORT))
    answer: Any = await connection.call(ApiKey.OFFSET_FETCH, version, request, 10.0)
    found = answer if version < 8 else answer.groups[0]
    if found.error_code:
        return ErrorKind(found.error_code), -1
    row = found.topics[0].partitions[0]
    return ErrorKind(row.error_code), row.committed_offset


@pytest.mark.parametrize("version", range(1, 11))
def test_every_broker_tells_what_was_committed(version: int) -> None:
    cluster = SimCluster(11, CALM)

    async def scenario(simulation: Simulation) -> list[tuple[ErrorKind, int]]:
        client = await started(cluster)
        keeper = OffsetKeeper(client, cluster.dice.fork("g"), 1, TOPIC)
        await keeper._commit(0)
        (node, *_) = cluster.nodes.values()
        topic_id = node.service.broker.image.topic(TOPIC).id
        return [await told(client, node.address, version, topic_id) for node in cluster.nodes.values()]

    assert cluster.simulation.run(scenario, limit_s=60.0) == [(ErrorKind.NONE, 1)] * 3


def test_nobody_hears_that_it_asked_the_wrong_broker() -> None:
    """While the coordinator dies, while another takes over, and after."""
    cluster = SimCluster(12, CALM)

    async def scenario(simulation: Simulation) -> set[tuple[ErrorKind, int]]:
        client = await started(cluster)
        keeper = OffsetKeeper(client, cluster.dice.fork("g"), 1, TOPIC)
        await keeper._commit(0)
        killed = leader_of(cluster, OFFSETS)
        left = [node for number, node in cluster.nodes.items() if number != killed]
        heard: set[tuple[ErrorKind, int]] = set()

        async def asks(address: str) -> None:
            end = soon()
            while asyncio.get_running_loop().time() < end:
                try:
                    heard.add(await told(client, address, 9))
                except (PeerLost, OSError):
                    pass
                await asyncio.sleep(0.01)

        asking = [asyncio.ensure_future(asks(node.address)) for node in left]
        await asyncio.sleep(1.0)
        cluster.nodes[killed].kill()
        await asyncio.gather(*asking)
        assert [await told(client, node.address, 9) for node in left] == [(ErrorKind.NONE, 1)] * 2
        return heard

    heard = cluster.simulation.run(scenario, limit_s=300.0)
    assert heard == {(ErrorKind.NONE, 1), (ErrorKind.COORDINATOR_LOAD_IN_PROGRESS, -1)}
