"""F40: configs that used to be accepted, shown and read by nobody, on virtual time: they are set through the door, and heard."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import ClusterClient
from cluster_sim import PORT, TOPIC, SimCluster
from test_lease import CALM, soon

from headrace.core.errors import ErrorKind
from headrace.records.build import Record, build_batch
from headrace.testing.sim_node import WALL_START_MS
from headrace.testing.simulation import Simulation
from headrace.wire.api import ApiKey
from headrace.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.share_group_describe import ShareGroupDescribeRequest
from headrace.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

TOPICS, BROKERS, GROUPS = 2, 4, 32
BATCH_BYTES = 50_000


async def start(cluster: SimCluster, configs: dict[str, str], partitions: int = 1) -> ClusterClient:
    for node in cluster.nodes.values():
        node.start()
    await cluster._brokers_live()
    addresses = [(node.address, PORT) for node in cluster.nodes.values()]
    client = ClusterClient(addresses, TOPIC, cluster.dice.fork("client"))
    await client.create_topic(partitions, 1, configs)
    return client


async def alter(client: ClusterClient, kind: int, name: str, **configs: str) -> None:
    rows = [AlterableConfig(key.replace("_", "."), 0, value) for key, value in configs.items()]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, rows)])
    (answer,) = (await client.ask_anyone(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)).responses
    assert ErrorKind(answer.error_code) is ErrorKind.NONE, answer.error_message


def batch(size: int, key: bytes | None = None) -> bytes:
    return build_batch([Record(key, b"x" * size)], wall_ms=WALL_START_MS)


def now() -> float:
    return asyncio.get_running_loop().time()


async def until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("side", ["leader", "follower", ""])
def test_f40_replicas_that_catch_up_are_throttled(side: str) -> None:
    """KIP-73: two megabytes move to another broker, at a hundred kilobytes a second, or as fast as they can."""
    cluster = SimCluster(1, CALM)

    async def scenario(simulation: Simulation) -> float:
        client = await start(cluster, {})
        for _ in range(40):
            await client.produce(0, batch(BATCH_BYTES), soon())
        if side:
            await alter(client, BROKERS, "", **{f"{side}_replication_throttled_rate": "100000"})
            await alter(client, TOPICS, TOPIC, **{f"{side}_replication_throttled_replicas": "*"})
        (old,) = cluster._partition_states()[0].replicas
        new = next(number for number in cluster.nodes.values() if cluster._numbers[number.name] != old)
        number = cluster._numbers[new.name]
        began = now()
        await client.move(TOPIC, 0, [number])
        await until(lambda: cluster._partition_states()[0].replicas == (number,))
        return now() - began

    seconds = cluster.simulation.run(scenario)
    if side:
        assert 19 <= seconds <= 40, "2,000,000 bytes, the first of them at once"
    else:
        assert seconds < 10


def test_f40_replicas_in_sync_are_never_throttled() -> None:
    cluster = SimCluster(2, CALM)

    async def scenario(simulation: Simulation) -> float:
        client = await start(cluster, {})
        await client.move(TOPIC, 0, [1, 2, 3])
        await until(lambda: set(cluster._partition_states()[0].isr) == {1, 2, 3})
        for side in ("leader", "follower"):
            await alter(client, BROKERS, "", **{f"{side}_replication_throttled_rate": "1000"})
            await alter(client, TOPICS, TOPIC, **{f"{side}_replication_throttled_replicas": "*"})
        await alter(client, TOPICS, TOPIC, min_insync_replicas="3")
        began = now()
        for _ in range(10):
            await client.produce(0, batch(BATCH_BYTES), soon())
        return now() - began

    assert cluster.simulation.run(scenario) < 30, "half a megabyte would take 500 seconds"


def test_f40_segments_roll_at_times_of_their_own() -> None:
    """segment.jitter.ms: eight partitions, filled at the same time, an hour long, up to an hour earlier."""
    cluster = SimCluster(3, replace(CALM, partitions=8))

    async def scenario(simulation: Simulation) -> int:
        client = await start(cluster, {"segment.ms": "3600000", "segment.jitter.ms": "3600000"}, 8)
        for partition in range(8):
            await client.produce(partition, batch(10), soon())
        await asyncio.sleep(1800)
        leaders = cluster._partition_states()
        by_number = {cluster._numbers[node.name]: node for node in cluster.nodes.values()}
        logs = [cluster._replica(by_number[state.leader], number).log for number, state in leaders.items()]
        return sum(log.segment_count > 1 for log in logs)

    assert 0 < cluster.simulation.run(scenario) < 8


@pytest.mark.parametrize("rate", ["", "1000"])
def test_f40_compaction_is_as_slow_as_it_was_told_to_be(rate: str) -> None:
    """log.cleaner.io.max.bytes.per.second: some 200,000 bytes of one key, looked at every 30 seconds."""
    cluster = SimCluster(4, CALM)

    async def scenario(simulation: Simulation) -> float:
        configs = {"cleanup.policy": "compact", "segment.bytes": "60000", "min.cleanable.dirty.ratio": "0"}
        client = await start(cluster, configs)
        if rate:
            await alter(client, BROKERS, "", log_cleaner_io_max_bytes_per_second=rate)
        for _ in range(20):
            await client.produce(0, batch(10_000, b"k"), soon())
        state = cluster._partition_states()[0]
        (node,) = (node for node in cluster.nodes.values() if cluster._numbers[node.name] == state.leader)
        log = cluster._replica(node, 0).log
        full, began = log.size_bytes, now()
        await until(lambda: log.size_bytes < full / 2)
        return now() - began

    seconds = cluster.simulation.run(scenario)
    assert seconds > 150 if rate else seconds < 60


@pytest.mark.parametrize("kind", ["consumer", "share"])
@pytest.mark.parametrize(("where", "seconds"), [("nowhere", 45), ("group", 50), ("brokers", 60)])
def test_f35_a_silent_member_is_missed_after_the_session_of_its_group(
    kind: str, where: str, seconds: int
) -> None:
    """consumer.session.timeout.ms and share.session.timeout.ms, of one group or of all."""
    cluster = SimCluster(5, CALM)
    join: Any = (
        ConsumerGroupHeartbeatRequest(
            "g", "m", 0, rebalance_timeout_ms=9_000, subscribed_topic_names=[TOPIC], topic_partitions=[]
        )
        if kind == "consumer"
        else ShareGroupHeartbeatRequest("g", "m", 0, subscribed_topic_names=[TOPIC])
    )
    describe: Any = (
        ConsumerGroupDescribeRequest(["g"]) if kind == "consumer" else ShareGroupDescribeRequest(["g"])
    )
    join_key, describe_key, version = (
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE, 1)
        if kind == "consumer"
        else (ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE, 1)
    )

    async def scenario(simulation: Simulation) -> float:
        client = await start(cluster, {})
        if where == "group":
            await alter(client, GROUPS, "g", **{f"{kind}_session_timeout_ms": "50000"})
        elif where == "brokers":
            await alter(client, BROKERS, "", **{f"group_{kind}_session_timeout_ms": "60000"})
        _, error = await client.ask_coordinator(
            "g", 0, join_key, version, join, lambda answer: answer.error_code, soon()
        )
        assert error is ErrorKind.NONE
        began = now()
        while True:
            answer, error = await client.ask_coordinator(
                "g", 0, describe_key, version, describe, lambda answer: answer.groups[0].error_code, soon()
            )
            if error is not ErrorKind.NONE or not answer.groups[0].members:
                return now() - began
            await asyncio.sleep(1)

    waited = cluster.simulation.run(scenario)
    assert seconds - 1 <= waited <= seconds + 3
