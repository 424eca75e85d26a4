"""A partition whose data lies on a living disk gets its leader back, and a replica that nobody counts on starts over.

What simulation seeds 8100061 (F82) and 8200146 (F85) found, step by step.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import ClusterClient, _batch
from cluster_sim import PORT, TOPIC, Shape, SimCluster
from test_lease import soon

from headrace.node.data_directory import NodeRecord
from headrace.node.node import Node
from headrace.testing.sim_node import SimNode

ALONE = Shape(partitions=1, min_isr=1, hostile=False)


def plain(value: str) -> bytes:
    return _batch([value], -1, -1, -1, transactional=False)


async def begun(cluster: SimCluster, replicas: int, min_isr: int = 1) -> ClusterClient:
    for node in cluster.nodes.values():
        node.start()
    await cluster._brokers_live()
    addresses = [(node.address, PORT) for node in cluster.nodes.values()]
    client = ClusterClient(addresses, TOPIC, cluster.dice.fork("client"))
    await client.create_topic(cluster.shape.partitions, replicas, {"min.insync.replicas": f"{min_isr}"})
    return client


async def eventually(condition: Any, seconds: float = 60.0) -> bool:
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.1)
    return True


# -- F82: lives that died before they learnt their epoch ----------------------------------------------------------------


def short_lives(monkeypatch: pytest.MonkeyPatch, node: SimNode, number: int) -> None:
    """The next life of the broker is registered and dies before it has written that down, the one after it dies before it is
    registered; later ones live."""
    registered, registering = Node._registered, Node._registering
    first = node.lives + 1

    def die_registered(self: Node, broker_epoch: int, lease: int) -> None:
        if self.settings.node_id == number and node.lives == first:
            node._crash()
        registered(self, broker_epoch, lease)

    def die_registering(self: Node, lease: int) -> None:
        registering(self, lease)
        if self.settings.node_id == number and node.lives == first + 1:
            node._crash()

    monkeypatch.setattr(Node, "_registered", die_registered)
    monkeypatch.setattr(Node, "_registering", die_registering)


def leads_again(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a partition has a leader again whose only one in sync died, and then lived twice very shortly."""
    cluster = SimCluster(3, ALONE)

    async def story(_: Any) -> bool:
        client = await begun(cluster, 3)
        await client.produce(0, plain("acknowledged"), soon())
        leader = cluster._partition_states()[0].leader
        others = [cluster.nodes[number] for number in cluster.nodes if number != leader]
        for other in others:
            other.cut_power()
        assert await eventually(lambda: cluster._partition_states()[0].isr == (leader,))
        await client.produce(0, plain("only here"), soon())
        node = cluster.nodes[leader]
        short_lives(monkeypatch, node, leader)
        node.kill()
        for other in others:
            other.start()
        assert await eventually(lambda: cluster._partition_states()[0].leader < 0)
        for _ in range(2):
            node.start()
            assert await eventually(lambda: not node.is_running)
        node.start()
        if not await eventually(lambda: cluster._partition_states()[0].leader >= 0):
            return False
        await client.produce(0, plain("after"), soon())
        return True

    led: bool = cluster.simulation.run(story)
    return led


def test_f82_lives_that_died_early_are_remembered_and_the_partition_is_led_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert leads_again(monkeypatch)


def test_f82_with_only_the_last_of_them_remembered_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant, which was the code: so that the test above is known to look in the right place."""
    monkeypatch.setattr(NodeRecord, "lives", property(lambda self: (self.incarnation,)))
    assert not leads_again(monkeypatch)


# -- F85: a replica that is not in sync lost its segments ---------------------------------------------------------------------


def test_f85_a_damaged_replica_that_nobody_counts_on_starts_over_and_its_bytes_are_kept() -> None:
    cluster = SimCluster(4, Shape(partitions=1, min_isr=1, hostile=False))

    async def story(_: Any) -> None:
        client = await begun(cluster, 3)
        for number in range(5):
            await client.produce(0, plain(f"{number}"), soon())
        new = next(number for number in cluster.nodes if number != cluster._partition_states()[0].leader)
        node = cluster.nodes[new]
        assert await eventually(lambda: cluster._replica(node, 0).high_watermark == 5)
        await node.service.stop()
        node.kill()
        assert await eventually(lambda: new not in cluster._partition_states()[0].isr)
        files = node.disk.mount(lambda: None)
        (home,) = [name for name in files.list_dir("/data/topics") if name.startswith(TOPIC)]
        for name in files.list_dir(f"/data/topics/{home}/0"):
            if name.endswith(".log"):
                files.remove(f"/data/topics/{home}/0/{name}")
        node.start()
        assert await eventually(lambda: new in cluster._partition_states()[0].isr)
        assert cluster._replica(node, 0).log.end_offset == 5
        kept = files.list_dir("/data/quarantine")
        assert [name for name in kept if name.startswith(f"{home}-0-")], "S12"

    cluster.simulation.run(story)


# -- F82: a leader that is alive and can't use its replica ------------------------------------------------------------------


def test_f82_a_damaged_leader_gives_up_when_the_coordinator_is_back() -> None:
    """It was away at that moment only; nothing else changes afterwards that would remind anybody."""
    cluster = SimCluster(5, Shape(partitions=1, min_isr=2, hostile=False))

    async def story(_: Any) -> None:
        client = await begun(cluster, 3)
        await client.produce(0, plain("before"), soon())
        leader = cluster._partition_states()[0].leader
        assert await eventually(lambda: len(cluster._partition_states()[0].isr) == 3)
        coordinator = cluster.coordinators[cluster.nodes[leader].name]
        coordinator.reachable = False
        cluster._replica(cluster.nodes[leader], 0).mark_failed()
        await asyncio.sleep(2.0)
        coordinator.reachable = True
        assert await eventually(lambda: cluster._partition_states()[0].leader not in (leader, -1))
        assert all(cluster._is_live(number) for number in cluster.nodes), "nobody was deposed for that"
        assert leader not in cluster._partition_states()[0].isr
        await client.produce(0, plain("after"), soon())

    cluster.simulation.run(story)


@pytest.mark.parametrize("min_isr", [1, 2])
def test_f82_a_damaged_leader_gives_up_to_a_complete_replica_that_comes_back(min_isr: int) -> None:
    """Nobody is in sync but the leader; with two required, who left is complete (R28), and leads when it is up again. With
    one required what left may have missed something: then the partition waits for a repair."""
    cluster = SimCluster(6, Shape(partitions=1, min_isr=min_isr, hostile=False))

    async def story(_: Any) -> None:
        client = await begun(cluster, 3, min_isr)
        await client.produce(0, plain("acknowledged"), soon())
        leader = cluster._partition_states()[0].leader
        others = [number for number in cluster.nodes if number != leader]
        for other in others:
            await cluster.nodes[other].service.stop()
            cluster.nodes[other].kill()
            assert await eventually(lambda other=other: other not in cluster._partition_states()[0].isr)
        last = cluster._partition_states()[0]
        assert (last.isr, last.elr) == ((leader,), (others[1],) if min_isr == 2 else ())
        cluster._replica(cluster.nodes[leader], 0).mark_failed()
        for other in others:
            cluster.nodes[other].start()
        if min_isr == 1:
            assert not await eventually(lambda: cluster._partition_states()[0].leader != leader)
            return
        assert await eventually(lambda: cluster._partition_states()[0].leader == others[1])
        await client.produce(0, plain("after"), soon())
        assert cluster._replica(cluster.nodes[others[1]], 0).log.end_offset == 2

    cluster.simulation.run(story)
