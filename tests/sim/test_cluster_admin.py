"""Administration of a cluster on virtual time: DeleteRecords waits for the replicas, UnregisterBroker forgets, changes at once all count."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import _batch
from cluster_sim import PORT, TOPIC, SimCluster
from test_lease import CALM, soon, started

from headrace.broker.peer import PeerConnection
from headrace.cluster import keys
from headrace.core.errors import ErrorKind
from headrace.testing.simulation import Simulation
from headrace.wire.api import ApiKey
from headrace.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.unregister_broker import UnregisterBrokerRequest


async def ask(cluster: SimCluster, number: int, key: int, version: int, request: object) -> Any:
    connection = await PeerConnection.open(cluster.nodes[number].address, PORT, "test")
    return await connection.call(key, version, request, 60.0)


async def delete(cluster: SimCluster, leader: int, offset: int, timeout_ms: int) -> Any:
    partitions = [DeleteRecordsPartition(0, offset)]
    request = DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, partitions)], timeout_ms)
    answer = await ask(cluster, leader, ApiKey.DELETE_RECORDS, 2, request)
    return answer.topics[0].partitions[0]


def test_deleted_records_are_gone_from_every_live_replica() -> None:
    """As in Kafka: a follower that still had them would bring them back as the next leader."""
    cluster = SimCluster(1, CALM)

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster)
        for number in range(6):
            await client.produce(0, _batch([f"{number}"], -1, -1, -1, transactional=False), soon())
        leader = cluster._partition_states()[0].leader
        row = await delete(cluster, leader, 3, 5_000)
        assert (row.error_code, row.low_watermark) == (0, 3)
        starts = {node.name: cluster._replica(node, 0).log.start_offset for node in cluster.nodes.values()}
        assert set(starts.values()) == {3}
        sleeper = next(node for number, node in cluster.nodes.items() if number != leader)
        sleeper.pause()
        row = await delete(cluster, leader, 4, 1_000)
        assert ErrorKind(row.error_code) is ErrorKind.REQUEST_TIMED_OUT, "it lives, and still has them"
        row = await delete(cluster, leader, 5, 30_000)
        assert (row.error_code, row.low_watermark) == (0, 5), "nobody waits for a broker that is fenced"
        sleeper.resume()
        await cluster._recovered()
        assert cluster._replica(sleeper, 0).log.start_offset == 5

    cluster.simulation.run(scenario)


def test_a_broker_that_is_gone_for_good_is_forgotten() -> None:
    cluster = SimCluster(2, CALM)

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster)
        await client.produce(0, _batch(["x"], -1, -1, -1, transactional=False), soon())

        async def forget(number: int) -> tuple[ErrorKind, str]:
            answer = await ask(cluster, 1, ApiKey.UNREGISTER_BROKER, 0, UnregisterBrokerRequest(number))
            return ErrorKind(answer.error_code), answer.error_message or ""

        assert (await forget(9))[0] is ErrorKind.BROKER_ID_NOT_REGISTERED
        assert await forget(3) == (ErrorKind.INVALID_REQUEST, "broker 3 is alive; stop it first")
        cluster.nodes[3].kill()
        await asyncio.sleep(10.0)
        error, why = await forget(3)
        assert error is ErrorKind.INVALID_REQUEST and "orders-0" in why, "its disk may be needed yet"
        await client.move(TOPIC, 0, [1, 2])
        await asyncio.sleep(5.0)
        assert await forget(3) == (ErrorKind.NONE, "")
        assert all(cluster.store.get(name) is None for name in (keys.epoch(3), keys.fence(3), keys.broker(3)))
        cluster.nodes[3].start()
        await cluster._recovered()
        assert cluster._is_live(3), "should it come back after all, it is a broker like any other"

    cluster.simulation.run(scenario)


AT_ONCE = [
    "delete.retention.ms", "file.delete.delay.ms", "flush.ms", "index.interval.bytes", "max.compaction.lag.ms", "max.message.bytes",
    "message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "min.compaction.lag.ms", "retention.bytes", "retention.ms",
    "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms",
]  # fmt: skip


def test_r1_changes_of_one_thing_at_every_broker_at_once_all_count() -> None:
    """Each is decided from what is there and compared; who was slower decides again, after a while that differs."""
    cluster = SimCluster(3, CALM)

    async def scenario(simulation: Simulation) -> None:
        await started(cluster)

        async def alter(number: int, name: str) -> int:
            configs = [AlterableConfig(name, 0, "1000012")]
            request = IncrementalAlterConfigsRequest([AlterConfigsResource(2, TOPIC, configs)], False)
            answer = await ask(cluster, 1 + number % 3, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
            return int(answer.responses[0].error_code)

        answers = await asyncio.gather(*(alter(number, name) for number, name in enumerate(AT_ONCE)))
        assert answers == [0] * len(AT_ONCE)
        kept = cluster.store.get(keys.topic(TOPIC))
        assert kept is not None
        assert all(f'"{name}"'.encode() in kept.value for name in AT_ONCE)

    cluster.simulation.run(scenario)
