"""What raises hurts itself only, and nothing vital ends in silence: on the shipped broker, on virtual time, with injected bugs."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import flusher
from headrace.broker.coordinators import GROUP
from headrace.broker.internal_topics import OFFSETS_TOPIC
from headrace.broker.load import ShardState
from headrace.broker.queueing.local import sender
from headrace.coordinator.memory import MemoryCoordinator
from headrace.core.errors import ErrorKind
from headrace.log.partition_log import PartitionLog
from headrace.log.results import LogCorrupt
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.records.build import Record, build_batch
from headrace.testing.dice import Dice
from headrace.testing.sim_node import SimNode, SimRuntime
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

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import ClusterClient
from cluster_sim import BROKERS, PORT, TOPIC, Shape, SimCluster
from queue_clients import SqsClient, Unknown
from sim_client import SimClient

TOPIC_RESOURCE = 2


class Injected(Exception):
    """A bug of the test's own making."""


def forgive(simulation: Simulation) -> int:
    """What was injected is no failure of the run; how often the broker told of it."""
    told = [entry for entry in simulation.loop.failures if isinstance(entry.get("exception"), Injected)]
    simulation.loop.failures[:] = [entry for entry in simulation.loop.failures if entry not in told]
    return len(told)


def alone(
    scenario: Callable[[Simulation, Node, SimClient], Coroutine[Any, Any, None]],
    seed: int = 1,
    limit_s: float = 600.0,
) -> None:
    """One broker, one topic `t`, one client."""
    simulation = Simulation(seed)
    world: dict[str, MemoryCoordinator] = {}
    nodes: list[Node] = []

    async def broker(node: SimNode, runtime: SimRuntime) -> None:
        settings = Settings(host=node.address, data_dir="/data", node_id=1, offsets_partitions=1)
        service = Node(settings, runtime, world["coordinator"])
        await service.start()
        nodes.append(service)
        await asyncio.get_running_loop().create_future()

    machine = simulation.node("b1", broker)

    async def run(simulation: Simulation) -> None:
        world["coordinator"] = MemoryCoordinator(machine.clock)
        machine.start()
        client = SimClient(machine.address, PORT)
        await client.create_topic("t")
        await scenario(simulation, nodes[0], client)

    simulation.run(run, limit_s=limit_s)


def test_f16_a_commit_listener_that_raises_hurts_itself_only() -> None:
    async def scenario(simulation: Simulation, node: Node, client: SimClient) -> None:
        partition = node.broker.partitions["t", 0]
        heard: list[int] = []

        def broken(offset: int) -> None:
            raise Injected("one bug in one listener")

        partition.on_commit.append(broken)
        partition.on_commit.append(heard.append)
        for number in range(5):
            await client.send("t", b"%d" % number)
        assert heard[-1] == 5, "those behind it hear of every commit"
        assert node.runtime.supervisor.surprises["commit listener"].count >= 5
        assert forgive(simulation) >= 5
        assert node.membership.lease_held() and node.broken_by is None

    alone(scenario)


def test_f16_the_shard_of_a_listener_that_raised_loads_again() -> None:
    async def scenario(simulation: Simulation, node: Node, client: SimClient) -> None:
        await node.services.coordinators.find("g", GROUP)
        journal = node.broker.partitions[OFFSETS_TOPIC, 0]
        (shard,) = [listener.__self__ for listener in journal.on_commit if hasattr(listener, "__self__")]
        await until(lambda: shard.state is ShardState.READY)
        before = shard.current

        def broken(effects: Any, replies: Any) -> None:
            del before._release
            raise Injected("a bug at the gate")

        before._release = broken
        before._gate.append((journal.high_watermark + 1, (), ()))
        journal.append_internal(
            build_batch([Record(b"", None)], wall_ms=node.runtime.clock.wall_ms()), urgent=True
        )
        await until(lambda: shard.state is ShardState.READY and shard.current is not before)
        await client.send("t", b"group commit goes on")
        assert forgive(simulation) == 1

    alone(scenario)


def test_f16_one_partition_that_raises_in_group_commit_goes_offline_alone() -> None:
    async def scenario(simulation: Simulation, node: Node, client: SimClient) -> None:
        await client.create_topic("other")
        partition = node.broker.partitions["t", 0]

        def broken() -> None:
            raise Injected("a bug in what follows a sync")

        partition.on_durable = broken  # type: ignore[method-assign]
        partition.request_flush(0, urgent=True)
        batch = bytearray(build_batch([Record(None, b"x")], wall_ms=node.runtime.clock.wall_ms()))
        partition.append_internal(batch, urgent=True)
        await until(lambda: partition.failed)
        assert partition.refusal(-1) is ErrorKind.KAFKA_STORAGE_ERROR
        await client.send("other", b"group commit goes on")
        assert forgive(simulation) == 1

    alone(scenario)


def test_f16_a_flusher_that_fails_once_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(simulation: Simulation, node: Node, client: SimClient) -> None:
        usual = flusher.Flusher._gather

        async def broken(self: flusher.Flusher) -> None:
            monkeypatch.setattr(flusher.Flusher, "_gather", usual)
            raise Injected("a bug in the flusher")

        monkeypatch.setattr(flusher.Flusher, "_gather", broken)
        await client.send("t", b"waits for the next one")
        assert forgive(simulation) == 1
        (task,) = [entry for entry in node.runtime.supervisor.tasks if entry.name == "group commit"]
        assert task.failures == 1 and task.is_running

    alone(scenario)


def test_f16_a_flusher_that_can_not_be_kept_alive_ends_the_broker_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its leaderships go to others, its lease is not renewed, and whoever started it is told why."""
    cluster = SimCluster(5, Shape(partitions=1, min_isr=2, hostile=False))

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster, 1)
        sick = cluster.nodes[cluster._partition_states()[0].leader]
        usual = flusher.Flusher._gather

        async def broken(self: flusher.Flusher) -> None:
            if self is sick.service.broker.flusher:
                raise Injected("a bug in the flusher")
            await usual(self)

        monkeypatch.setattr(flusher.Flusher, "_gather", broken)
        for number in range(40):
            await client.produce(0, batch_of(f"{number}"), soon())
            await asyncio.sleep(1.0)
        assert cluster.nodes[cluster._partition_states()[0].leader] is not sick
        assert sick.service.broken.is_set() and "group commit" in sick.service.broken_by
        assert not sick.service.membership.lease_held()
        assert forgive(simulation) >= 8

    cluster.simulation.run(scenario, limit_s=300.0)


# -- followers ----------------------------------------------------------------------------------------------------------


async def started(cluster: SimCluster, partitions: int, **configs: str) -> ClusterClient:
    for node in cluster.nodes.values():
        node.start()
    await cluster._brokers_live()
    addresses = [(node.address, PORT) for node in cluster.nodes.values()]
    client = ClusterClient(addresses, TOPIC, cluster.dice.fork("client"))
    named = {key.replace("_", "."): value for key, value in configs.items()}
    await client.create_topic(partitions, BROKERS, {"min.insync.replicas": "2"} | named)
    await until(lambda: all(len(state.isr) == BROKERS for state in cluster._partition_states().values()))
    return client


def batch_of(value: str) -> bytes:
    return bytes(build_batch([Record(None, value.encode())], wall_ms=1_750_000_000_000))


def soon() -> float:
    return asyncio.get_running_loop().time() + 60.0


async def until(condition: Callable[[], bool]) -> None:
    """Virtual time: the run ends when it takes too long."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def followers(cluster: SimCluster, number: int) -> list[SimNode]:
    leader = cluster._partition_states()[number].leader
    return [node for broker, node in cluster.nodes.items() if broker != leader]


@pytest.mark.parametrize("problem", [LogCorrupt("0.log", 0, 0, "a bad CRC"), Injected("a bug")])
def test_f17_a_damaged_follower_takes_one_replica_offline_and_not_the_fetcher(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SimCluster(7, Shape(partitions=3, min_isr=2, hostile=False))
    usual = PartitionLog.advance_start

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster, 3)
        for number in range(3):
            await client.produce(number, batch_of("before"), soon())
        sick = followers(cluster, 0)[0]
        damaged = cluster._replica(sick, 0)
        leader = cluster._partition_states()[0].leader
        healthy = [number for number, state in cluster._partition_states().items() if state.leader == leader]

        def broken(self: PartitionLog, *arguments: Any) -> Any:
            if self is damaged.log:
                raise problem
            return usual(self, *arguments)

        monkeypatch.setattr(PartitionLog, "advance_start", broken)
        await delete_records(client, 0, 1)
        await until(lambda: damaged.failed)
        for number in range(3):
            if number != 0:
                await client.produce(number, batch_of("after"), soon())
                await until(lambda number=number: cluster._replica(sick, number).log.end_offset == 2)  # type: ignore[misc]
        assert healthy, "some of them come from the same leader"
        assert [tp.partition for tp in sick.service.broker.replicas.offline] == [0]
        forgive(simulation)

    cluster.simulation.run(scenario, limit_s=300.0)


async def delete_records(client: ClusterClient, partition: int, offset: int) -> None:
    """It may not be told that everybody has done it: one of them can't."""
    connection = await client.connection(await client.leader(partition))
    rows = [DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(partition, offset)])]
    await connection.call(ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(rows, 1_000), 30.0)


def test_f17_an_error_code_that_only_a_newer_broker_knows_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from headrace.broker import replicator

    cluster = SimCluster(8, Shape(partitions=2, min_isr=2, hostile=False))
    usual = replicator.decode_fetch_response
    strange = [20]

    def newer(frame: Any, position: int, version: int) -> Any:
        response = usual(frame, position, version)
        if strange[0]:
            strange[0] -= 1
            rows = [topic.partitions[0] for topic in response.topics if topic.partitions]
            for topic in response.topics:
                topic.partitions[:] = [
                    row._replace(error_code=9_999) if row in rows else row for row in topic.partitions
                ]
        return response

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster, 2)
        monkeypatch.setattr(replicator, "decode_fetch_response", newer)
        await until(lambda: strange[0] == 0)
        for number in range(2):
            await client.produce(number, batch_of("after"), soon())
            await until(
                lambda number=number: all(  # type: ignore[misc]
                    cluster._replica(node, number).log.end_offset == 1 for node in cluster.nodes.values()
                )
            )

    cluster.simulation.run(scenario, limit_s=300.0)


def test_f17_whoever_sends_to_a_queue_is_answered_when_the_write_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages of one turn are written together, called by nobody: a bug there would keep their senders waiting for ever."""
    build, raised = sender.build_batch, list[int]()

    def broken(*arguments: Any, **named: Any) -> Any:
        if not raised:
            raised.append(1)
            raise Injected("a bug where batches are made")
        return build(*arguments, **named)

    async def scenario(simulation: Simulation, node: Node, client: SimClient) -> None:
        sqs = [SqsClient([node.settings.host], Dice(number)) for number in range(3)]
        await sqs[0].insist("CreateQueue", QueueName="jobs")
        await sqs[0].insist("SendMessage", QueueUrl="jobs", MessageBody="first")
        monkeypatch.setattr(sender, "build_batch", broken)
        asks = [one.ask("SendMessage", QueueUrl="jobs", MessageBody="second") for one in sqs]
        answers = await asyncio.gather(*asks, return_exceptions=True)
        told = [answer.args for answer in answers if isinstance(answer, Unknown)]
        assert raised and told and all(told), "an error, and no silence that its client has to end"
        assert all("MessageId" in answer for answer in answers if isinstance(answer, dict))
        await sqs[0].ask("SendMessage", QueueUrl="jobs", MessageBody="third")
        assert forgive(simulation) == 1

    alone(scenario)


def test_f23_a_follower_with_a_full_disk_looks_now_and_then_and_says_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SimCluster(9, Shape(partitions=1, min_isr=2, hostile=False))
    usual = PartitionLog.append_replicated
    tries = [0]

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster, 1)
        await client.produce(0, batch_of("before"), soon())
        sick = followers(cluster, 0)[0]
        replica = cluster._replica(sick, 0)
        await until(lambda: replica.log.end_offset == 1)

        def counted(self: PartitionLog, *arguments: Any) -> Any:
            tries[0] += self is replica.log
            return usual(self, *arguments)

        monkeypatch.setattr(PartitionLog, "append_replicated", counted)
        roomy, sick.disk.capacity_bytes = sick.disk.capacity_bytes, sick.disk.used_bytes
        with caplog.at_level(logging.WARNING):
            for number in range(60):
                await client.produce(0, batch_of(f"{number}"), soon())
                await asyncio.sleep(1.0)
            assert not replica.failed and replica.log.end_offset == 1
            assert tries[0] < 40, "it looks every few seconds"
            assert "disk is full" in (replica.following.trouble() or "")
            sick.disk.capacity_bytes = roomy
            leader = cluster._replica(cluster.nodes[cluster._partition_states()[0].leader], 0)
            await until(lambda: replica.log.end_offset == leader.log.end_offset)
        about = [entry.message for entry in caplog.records if "what the leader sends" in entry.message]
        assert len(about) == 2, "one line when it begins and one when it ends"
        assert len(caplog.records) < 20, "and nobody else talks of nothing else"
        assert replica.following.trouble() is None

    cluster.simulation.run(scenario, limit_s=300.0)


async def all_replicas(cluster: SimCluster) -> list[Any]:
    """Of partition 0; a broker may be slow to open its own."""
    await until(lambda: all(cluster._replica(node, 0) is not None for node in cluster.nodes.values()))
    return [cluster._replica(node, 0) for node in cluster.nodes.values()]


# -- configs of a live topic ---------------------------------------------------------------------------------------------


async def alter(client: ClusterClient, **configs: str) -> None:
    rows = [AlterableConfig(name.replace("_", "."), 0, value) for name, value in configs.items()]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC_RESOURCE, TOPIC, rows)])
    answer = await client.ask_anyone(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert answer.responses[0].error_code == 0, answer


def test_f7_followers_hear_that_a_live_topic_need_not_be_synced_any_more() -> None:
    """commit -> os: an acks=all that waits for followers who wait for a sync that nobody asks for takes a minute."""
    cluster = SimCluster(11, Shape(partitions=1, min_isr=2, hostile=False))

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster, 1)
        await alter(client, headrace_flush="os")
        replicas = await all_replicas(cluster)
        await until(lambda: all(replica.config.flush == "os" for replica in replicas))
        began = asyncio.get_running_loop().time()
        for number in range(10):
            await client.produce(0, batch_of(f"{number}"), soon())
        assert asyncio.get_running_loop().time() - began < 10.0, "virtual seconds"
        assert min(replica.log.durable_end for replica in replicas) < 10, "nobody synced"

    cluster.simulation.run(scenario, limit_s=300.0)


def test_f7_followers_hear_that_a_live_topic_must_be_synced_from_now_on() -> None:
    """os -> commit: acks=all promises that it is on the disks of those in sync, also what was written just before."""
    cluster = SimCluster(12, Shape(partitions=1, min_isr=2, hostile=False))

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster, 1, headrace_flush="os")
        replicas = await all_replicas(cluster)
        await client.produce(0, batch_of("lazy"), soon())
        await alter(client, headrace_flush="commit")
        await until(lambda: all(replica.config.flush == "commit" for replica in replicas))
        await until(lambda: all(replica.log.durable_end == 1 for replica in replicas))
        for number in range(1, 10):
            offset = await client.produce(0, batch_of(f"{number}"), soon())
            in_sync = cluster._partition_states()[0].isr
            for broker in in_sync:
                assert cluster._replica(cluster.nodes[broker], 0).log.durable_end > offset

    cluster.simulation.run(scenario, limit_s=300.0)


def test_f7_where_a_live_topic_keeps_its_data_can_not_be_changed_under_it() -> None:
    """A brother: its logs are opened once, on disk or in memory, and a config that says otherwise would lose them."""
    cluster = SimCluster(13, Shape(partitions=1, min_isr=2, hostile=False))

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster, 1)
        for name, value, expected in (
            ("headrace.storage", "memory", ErrorKind.INVALID_CONFIG),
            ("headrace.storage", "disk", ErrorKind.NONE),
            ("retention.ms", "1000000", ErrorKind.NONE),
        ):
            rows = [AlterConfigsResource(TOPIC_RESOURCE, TOPIC, [AlterableConfig(name, 0, value)])]
            answer = await client.ask_anyone(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(rows)
            )
            assert answer.responses[0].error_code == expected, answer

    cluster.simulation.run(scenario, limit_s=300.0)
