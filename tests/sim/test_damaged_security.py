"""A51 on virtual time: what the coordinator says about security and nobody can read takes away, and never gives."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_sim import PORT, SimCluster
from test_lease import CALM, started

from headrace.broker.peer import PeerConnection, PeerLost
from headrace.coordinator.port import Put
from headrace.testing.sim_node import SimNode
from headrace.testing.simulation import Simulation
from headrace.wire.api import ApiKey
from headrace.wire.messages.metadata import MetadataRequest


async def ask(node: SimNode) -> int:
    connection = await PeerConnection.open(node.address, PORT, "anybody")
    answer = await connection.call(ApiKey.METADATA, 9, MetadataRequest(None, False), 5.0)
    return len(answer.topics)


async def is_refused(node: SimNode) -> bool:
    try:
        await ask(node)
    except PeerLost:
        return True
    return False


@pytest.mark.parametrize("raw", [b"\xff", b'{"mode": "wide open"}'])
def test_a51_a_mode_that_nobody_can_read_opens_no_door(raw: bytes) -> None:
    cluster = SimCluster(31, CALM)

    async def scenario(simulation: Simulation) -> None:
        await started(cluster)
        node = cluster.nodes[1]
        assert await ask(node), "open: anybody is answered"
        cluster.store.txn([], [Put("security/mode", raw)])
        async with asyncio.timeout(60.0):
            while not await is_refused(node):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        # And a broker that has never known another mode does not take the damage for none.
        node.kill()
        node.start()
        await cluster._recovered()
        assert await is_refused(node)

    cluster.simulation.run(scenario, limit_s=600.0)
