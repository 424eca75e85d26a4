"""/readyz tells the truth, brokers that can't start yet wait and say so, and clients are never told of nobody: virtual time."""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.broker.peer import PeerConnection, PeerLost
from headrace.coordinator.memory import MemoryCoordinator
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.testing.hostile_coordinator import HostileCoordinator
from headrace.testing.sim_disk import DiskFault
from headrace.testing.sim_node import SimNode, SimRuntime
from headrace.testing.simulation import Simulation
from headrace.wire.api import ApiKey
from headrace.wire.messages.describe_quorum import DescribeQuorumRequest
from headrace.wire.messages.metadata import MetadataRequest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_sim import NO_ODDS, PORT, TOPIC, Shape, SimCluster
from sim_client import SimClient
from test_supervision import batch_of, followers, soon, started, until

HTTP_PORT = 9324
CALM = Shape(partitions=1, min_isr=2, hostile=False)


async def get(node: SimNode, path: str) -> tuple[int, str]:
    """Status and body; 0 when nobody answers."""
    try:
        reader, writer = await asyncio.open_connection(node.address, HTTP_PORT)
        host = f"{node.address}:{HTTP_PORT}"
        writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        answer = await reader.read(65536)
        while more := await reader.read(65536):
            answer += more
        writer.close()
    except OSError:
        return 0, ""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


async def readyz(node: SimNode, is_so: Callable[[int, str], bool]) -> None:
    """Until /readyz answers as it should. Virtual time: the run ends when it takes too long."""
    while not is_so(*await get(node, "/readyz?verbose")):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def until_ready(node: SimNode) -> None:
    await readyz(node, lambda status, body: status == 200)


def test_f19_clients_are_never_told_of_nobody() -> None:
    """The coordinator is away for longer than the leases and comes back without one registration."""
    cluster = SimCluster(21, CALM)
    told: list[set[int]] = []

    async def ask_on(node: SimNode, enough: asyncio.Event) -> None:
        while not enough.is_set():
            try:
                connection = await PeerConnection.open(node.address, PORT, "test")
                while not enough.is_set():
                    answer = await connection.call(ApiKey.METADATA, 9, MetadataRequest(None, False), 5.0)
                    told.append({broker.node_id for broker in answer.brokers})
                    await asyncio.sleep(0.02)
            except PeerLost:
                await asyncio.sleep(0.1)

    async def scenario(simulation: Simulation) -> None:
        await started(cluster, 1)
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for node in cluster.nodes.values():
                tasks.create_task(ask_on(node, enough))
            for coordinator in cluster.coordinators.values():
                coordinator.reachable = False
            await asyncio.sleep(15.0)
            for coordinator in cluster.coordinators.values():
                coordinator.reachable = True
            await cluster._recovered()
            await asyncio.sleep(15.0)
            enough.set()
        assert len(told) > 1_000
        assert all(brokers == {1, 2, 3} for brokers in told), "nobody was gone at any time"

    cluster.simulation.run(scenario, limit_s=600.0)


def test_a_leader_is_one_of_the_brokers_of_the_answer() -> None:
    """As in Kafka. librdkafka forgets brokers that an answer does not name; asked for at one of them, a partition is never heard of again."""
    cluster = SimCluster(25, CALM)
    told = 0

    def look(answer: Any) -> None:
        named = {broker.node_id for broker in answer.brokers}
        for topic in answer.topics:
            for row in topic.partitions:
                assert row.leader_id in named or row.leader_id == -1, (row.leader_id, named)
                assert (row.leader_id == -1) == bool(row.error_code)

    async def ask_on(node: SimNode, enough: asyncio.Event) -> None:
        nonlocal told
        while not enough.is_set():
            try:
                connection = await PeerConnection.open(node.address, PORT, "test")
                while not enough.is_set():
                    look(await connection.call(ApiKey.METADATA, 9, MetadataRequest(None, False), 5.0))
                    told += 1
                    await asyncio.sleep(0.01)
            except PeerLost:
                await asyncio.sleep(0.05)

    async def scenario(simulation: Simulation) -> None:
        await started(cluster, 1)
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for node in cluster.nodes.values():
                tasks.create_task(ask_on(node, enough))
            for node in cluster.nodes.values():
                await node.service.stop()
                node.kill()
                await asyncio.sleep(15.0)
                node.start()
                await cluster._recovered()
            for number in (1, 2, 3):
                cluster.nodes[number].kill()
                await asyncio.sleep(1.0)
            for node in cluster.nodes.values():
                node.start()
            await cluster._recovered()
            enough.set()
        assert told > 1_000

    cluster.simulation.run(scenario, limit_s=900.0)


def test_f19_a_broker_that_is_really_gone_is_not_named_for_ever() -> None:
    cluster = SimCluster(22, CALM)

    async def scenario(simulation: Simulation) -> None:
        await started(cluster, 1)
        cluster.nodes[3].kill()
        survivor = cluster.nodes[1].service.services
        await until(lambda: [node.id for node in survivor.client_brokers.now()] == [1, 2])

    cluster.simulation.run(scenario, limit_s=600.0)


def test_a_broker_that_comes_back_soon_was_never_gone_for_clients() -> None:
    """librdkafka takes a broker apart that an answer does not name, and calls that waited for it never return."""
    cluster = SimCluster(24, CALM)
    told: list[set[int]] = []

    async def scenario(simulation: Simulation) -> None:
        await started(cluster, 1)
        node, image = cluster.nodes[1], cluster.nodes[1].service.broker.image
        connection = await PeerConnection.open(node.address, PORT, "test")

        async def ask() -> None:
            answer = await connection.call(ApiKey.METADATA, 9, MetadataRequest(None, False), 5.0)
            told.append({broker.node_id for broker in answer.brokers})

        def lives(number: int) -> bool:
            return number in {broker.id for broker in image.live_brokers()}

        await ask()
        cluster.nodes[3].kill()
        await until(lambda: not lives(3))
        await ask()
        cluster.nodes[3].start()
        while not lives(3):
            await asyncio.sleep(0.05)
            await ask()
        assert len(told) > 2 and all(brokers == {1, 2, 3} for brokers in told)

    cluster.simulation.run(scenario, limit_s=600.0)


def test_f47_readyz_and_the_quorum_say_when_the_coordinator_is_away() -> None:
    cluster = SimCluster(23, CALM)

    async def scenario(simulation: Simulation) -> None:
        await started(cluster, 1)
        node = cluster.nodes[1]
        await until_ready(node)
        assert await get(node, "/readyz") == (200, "ok\n")
        for coordinator in cluster.coordinators.values():
            coordinator.reachable = False
        await readyz(node, lambda status, body: "[!]coordinator no answer" in body)
        await readyz(node, lambda status, body: status == 503)
        status, body = await get(node, "/readyz")
        assert status == 503 and "coordinator" in body and "lease" in body
        assert 'mq_health{check="coordinator"} 2' in (await get(node, "/metrics"))[1]
        connection = await PeerConnection.open(node.address, PORT, "test")
        quorum: Any = await connection.call(ApiKey.DESCRIBE_QUORUM, 2, DescribeQuorumRequest([]), 5.0)
        assert quorum.error_code and "coordinator: no answer" in quorum.error_message
        for coordinator in cluster.coordinators.values():
            coordinator.reachable = True
        await until_ready(node)

    cluster.simulation.run(scenario, limit_s=600.0)


def test_f47_a_full_disk_is_not_ready_and_a_follower_that_falls_behind_is_told() -> None:
    cluster = SimCluster(24, CALM)

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster, 1)
        sick = followers(cluster, 0)[0]
        await until_ready(sick)
        roomy, sick.disk.capacity_bytes = sick.disk.capacity_bytes, sick.disk.used_bytes
        await client.produce(0, batch_of("more than there is room for"), soon())
        await readyz(
            sick,
            lambda status, body: (
                status == 503 and "nearly full" in body and "falls behind: the disk is full" in body
            ),
        )
        sick.disk.capacity_bytes = roomy
        await until_ready(sick)

    cluster.simulation.run(scenario, limit_s=600.0)


def test_f16_a_lease_is_not_renewed_while_appends_wait_for_a_group_commit_that_does_not_come() -> None:
    cluster = SimCluster(25, CALM)

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster, 1)
        sick = cluster.nodes[cluster._partition_states()[0].leader]
        (task,) = [entry for entry in sick.service.runtime.supervisor.tasks if entry.name == "group commit"]
        task.cancel()
        await client.produce(0, batch_of("taken by another"), soon())
        assert cluster.nodes[cluster._partition_states()[0].leader] is not sick
        await until(lambda: not sick.service.membership.lease_held())
        status, body = await get(sick, "/readyz")
        assert status == 503 and "group commit" in body

    cluster.simulation.run(scenario, limit_s=600.0)


# -- starting -----------------------------------------------------------------------------------------------------------


class Beginner:
    """One broker that is about to start."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.machine = self.simulation.node("b1", self._program)
        self.coordinator: HostileCoordinator | None = None
        self.nodes: list[Node] = []

    async def _program(self, node: SimNode, runtime: SimRuntime) -> None:
        assert self.coordinator is not None
        service = Node(Settings(host=node.address, data_dir="/data", node_id=1), runtime, self.coordinator)
        self.nodes.append(service)
        await service.start()
        await asyncio.get_running_loop().create_future()

    def run(self, scenario: Callable[[Beginner], Any]) -> None:
        async def begin(simulation: Simulation) -> None:
            inner = MemoryCoordinator(self.machine.clock)
            self.coordinator = HostileCoordinator(inner, simulation.dice.fork("coordinator"))
            self.coordinator.odds = NO_ODDS
            await scenario(self)

        self.simulation.run(begin, limit_s=600.0)


def test_f47_a_broker_that_starts_while_the_coordinator_is_away_waits_and_says_so() -> None:
    async def scenario(world: Beginner) -> None:
        assert world.coordinator is not None
        world.coordinator.reachable = False
        world.machine.start()
        await readyz(world.machine, lambda status, body: "waiting until the coordinator answers" in body)
        status, body = await get(world.machine, "/readyz")
        assert status == 503
        status, body = await get(world.machine, "/v1/topics")
        assert status == 503 and "NOT_READY" in body, "and not a 404"
        assert (await get(world.machine, "/livez"))[0] == 200, "nobody should kill it"
        await asyncio.sleep(120.0)
        assert not world.nodes[0].ready
        world.coordinator.reachable = True
        await until_ready(world.machine)
        client = SimClient(world.machine.address, PORT)
        await client.create_topic("t")
        await client.send("t", b"x")

    Beginner(31).run(scenario)


def test_f47_a_broker_that_starts_on_a_full_disk_waits_and_says_so() -> None:
    async def scenario(world: Beginner) -> None:
        world.machine.start()
        await until_ready(world.machine)
        client = SimClient(world.machine.address, PORT)
        await client.create_topic("t")
        await client.send("t", b"before")
        world.machine.kill()
        disk = world.machine.disk
        roomy, disk.capacity_bytes = disk.capacity_bytes, disk.used_bytes
        world.machine.start()
        await readyz(world.machine, lambda status, body: "waiting until there is room on the disk" in body)
        await asyncio.sleep(60.0)
        assert not world.nodes[-1].ready
        disk.capacity_bytes = roomy
        await until_ready(world.machine)
        assert list((await SimClient(world.machine.address, PORT).read_all("t")).values()) == [b"before"]

    Beginner(32).run(scenario)


def test_f47_a_coordinator_that_goes_in_the_middle_of_a_start_is_waited_for() -> None:
    async def scenario(world: Beginner) -> None:
        assert world.coordinator is not None
        usual = world.coordinator.grant

        async def goes_away(ttl_ms: int) -> Any:
            assert world.coordinator is not None
            world.coordinator.reachable = False
            world.coordinator.grant = usual  # type: ignore[method-assign]
            return await usual(ttl_ms)

        world.coordinator.grant = goes_away  # type: ignore[method-assign]
        world.machine.start()
        await readyz(world.machine, lambda status, body: "takes the registration" in body)
        await asyncio.sleep(100.0)
        assert world.machine.is_running and not world.nodes[0].ready
        world.coordinator.reachable = True
        await until_ready(world.machine)

    Beginner(33).run(scenario)


def test_f47_what_could_not_be_opened_for_want_of_room_is_tried_again() -> None:
    """S15: the start itself fits, one log does not; it is not offline until somebody restarts the broker."""

    async def scenario(world: Beginner) -> None:
        world.machine.start()
        await until_ready(world.machine)
        client = SimClient(world.machine.address, PORT)
        await client.create_topic("t")
        await client.send("t", b"before")
        world.machine.kill()
        for _ in range(3):
            world.machine.disk.arm(DiskFault.APPEND_ERROR, "/data/topics/t@", error=errno.ENOSPC)
        world.machine.start()
        await until_ready(world.machine)
        again = SimClient(world.machine.address, PORT)
        await again.send("t", b"after")
        assert list((await again.read_all("t")).values()) == [b"before", b"after"]
        assert not world.nodes[-1].broker.replicas.offline
        assert not world.machine.disk._armed, "it did happen"

    Beginner(34).run(scenario)


def test_f47_a_replica_that_was_moved_away_is_nobodys_trouble_any_more() -> None:
    cluster = SimCluster(26, CALM)

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster, 1)
        sick = followers(cluster, 0)[0]
        number = next(number for number, node in cluster.nodes.items() if node is sick)
        cluster._replica(sick, 0).mark_failed()
        await readyz(
            sick, lambda status, body: status == 200 and "[!]replication orders-0 is offline" in body
        )
        await client.move(TOPIC, 0, [other for other in cluster.nodes if other != number])
        await readyz(sick, lambda status, body: "[+]replication ok" in body)

    cluster.simulation.run(scenario, limit_s=600.0)
