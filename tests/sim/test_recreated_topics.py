"""F1, F24 on virtual time: topics that are deleted and made again, and replicas whose removal was cut short."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import ClusterClient, _batch, _now
from cluster_invariants import Place
from cluster_sim import BROKERS, PORT, TOPIC, Shape, SimCluster, find
from queue_sim import QueueCluster, QueueShape
from queue_stage import CONFIGS, Stage
from recreation import AGAIN, Recreator
from test_lease import CALM, soon, started
from test_queue_homes import receive_all

from headrace.broker.groups import Groups
from headrace.broker.load import Load
from headrace.broker.peer import PeerConnection
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.testing.sim_node import SimNode
from headrace.testing.simulation import Simulation
from headrace.wire.api import ApiKey
from headrace.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
)
from headrace.wire.fetch_response import decode_fetch_response
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

TOPICS = "/data/topics"


def home(cluster: SimCluster) -> str:
    state = json.loads(cluster.store.get(f"topics/{TOPIC}").value)  # type: ignore[union-attr]
    return f"{TOPICS}/{TOPIC}@{state['id']}"


def leave_behind(node: Any, directory: str) -> None:
    """What a removal leaves that was cut short between the rename and the last unlink."""
    fs = node.service.broker.runtime.fs
    fs.make_dirs(directory)
    fs.write_file(f"{directory}/00000000000000000000.log", b"left over")


async def until(condition: Any) -> None:
    async with asyncio.timeout(120.0):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def test_f24_what_a_removal_left_is_not_in_the_way_of_the_next() -> None:
    cluster = SimCluster(1, CALM)

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster)
        leader = cluster._partition_states()[0].leader
        kept, leaving = (number for number in cluster.nodes if number != leader)
        directory, node = f"{home(cluster)}/0", cluster.nodes[leaving]
        leave_behind(node, f"{directory}.deleted")
        await client.move(TOPIC, 0, [leader, kept])
        await until(lambda: not node.disk.find(directory))
        assert node.disk.find(f"{directory}.deleted") is None
        # And what is left when nobody removes that replica again goes at the next start.
        leave_behind(cluster.nodes[kept], f"{directory}.deleted")
        leave_behind(cluster.nodes[kept], f"{TOPICS}/gone@{'0' * 31}1.deleted/0")
        cluster.nodes[kept].kill()
        cluster.nodes[kept].start()
        await cluster._recovered()
        found = cluster.nodes[kept].disk
        assert found.find(f"{directory}.deleted") is None and found.find(directory) is not None
        assert found.find(f"{TOPICS}/gone@{'0' * 31}1.deleted") is None

    cluster.simulation.run(scenario)


def test_r34_a_fetch_by_id_is_not_answered_from_the_log_of_the_topic_before() -> None:
    """The image knows the new topic already, and its disk is too slow to have carried the old one away."""
    cluster = SimCluster(2, CALM)

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster)
        await client.produce(0, _batch(["old"], -1, -1, -1, transactional=False), soon())
        node = cluster.nodes[cluster._partition_states()[0].leader]
        broker = node.service.broker
        old = broker.image.topic(TOPIC).id
        connection = await PeerConnection.open(node.address, PORT, "test")

        async def fetch(topic_id: bytes) -> Any:
            wanted = FetchTopic("", topic_id, [FetchPartition(0, -1, 0, -1, -1, 1 << 20)])
            body = encode_fetch_request(FetchRequest(-1, -1, 0, 0, 1 << 20, 0, 0, -1, [wanted]), 13)
            frame, at = await connection.exchange(ApiKey.FETCH, 13, [body], 60.0)
            return decode_fetch_response(frame, at, 13).topics[0].partitions[0]

        assert (await fetch(old)).error_code == 0
        node.hang_disk(60.0)
        others = [CreatableTopic(f"other-{number}", 1, BROKERS, [], []) for number in range(12)]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                client.ask_anyone(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(others, 1_000, False), 600)
            )
            await until(lambda: broker.image.topic("other-11") is not None)
            doomed = DeleteTopicsRequest([DeleteTopicState(TOPIC, ZERO_UUID)], [], 1_000)
            tasks.create_task(client.ask_anyone(ApiKey.DELETE_TOPICS, 6, doomed, 600))
            await until(lambda: broker.image.topic(TOPIC) is None)
            tasks.create_task(client.create_topic(1, BROKERS, {"min.insync.replicas": "2"}))
            await until(lambda: broker.image.topic(TOPIC) is not None)
            assert broker.replicas.partitions[(TOPIC, 0)].topic_id == old, "the stage is not set"
            row = await fetch(broker.image.topic(TOPIC).id)
            assert row.error_code == ErrorKind.UNKNOWN_TOPIC_ID and not row.records

    cluster.simulation.run(scenario, limit_s=900.0)


@pytest.mark.parametrize("seed", range(3))
def test_f1_offsets_stay_in_their_life_of_a_topic(seed: int) -> None:
    """F78: deleted and made again in a storm: no offset of an earlier life, none of this one lost, nothing left on a disk."""
    cluster = SimCluster(
        seed, Shape(seconds=40.0, pause_s=0.3, period_s=4.0, recreates=True, transactional_ids=0)
    )
    cluster.run()
    assert cluster.lives > 2


@pytest.mark.parametrize("compares", [True, False])
def test_f1_it_is_the_id_that_tells(compares: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any word of deletions no offset is inherited; without the comparison they are, and a run notices."""
    monkeypatch.setattr(Groups, "topic_deleted", lambda self, topic, topic_id: None)
    monkeypatch.setattr(Groups, "_catch_up", lambda self, load: None)
    shape = Shape(seconds=40.0, pause_s=0.3, period_s=4.0, recreates=True, transactional_ids=0)
    if compares:
        assert SimCluster(3, shape).run()
    else:
        monkeypatch.setattr(Groups, "_may_be_for", lambda self, topic, topic_id: True)
        assert find(range(3, 9), lambda seed: SimCluster(seed, shape)) is not None


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_f1_a_queue_made_again_holds_what_was_sent_to_it(fifo: bool) -> None:
    """F78: in a storm, with the same deduplication ids each time: nothing of an earlier life, nothing of this one lost."""
    shape = QueueShape(
        seconds=40.0,
        partitions=1,
        pause_s=0.3,
        period_s=4.0,
        fifo=fifo,
        recreates=True,
        workers=1,
        producers=1,
    )
    cluster = QueueCluster(5, shape)
    cluster.run()
    assert cluster.lives > 2


def gate(monkeypatch: pytest.MonkeyPatch, topic: str) -> asyncio.Event:
    """Shards of a journal load, but not before the event is set."""
    opened, load = asyncio.Event(), Load.load

    async def late(self: Load) -> None:
        if self.shard.partition.tp.topic.startswith(topic):
            await opened.wait()
        await load(self)

    opened.set()
    monkeypatch.setattr(Load, "load", late)
    return opened


def leader_of(cluster: SimCluster, topic: str) -> SimNode:
    return cluster.nodes[cluster.invariants.states()[Place(topic, 0)].leader]


def test_f1_a_topic_deleted_while_its_groups_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hears of the deletion; nor does the group inherit anything, nor is the offset kept."""
    cluster = SimCluster(4, CALM)

    async def scenario(simulation: Simulation) -> None:
        await started(cluster)
        opened = gate(monkeypatch, "__consumer_offsets")
        client = ClusterClient([(node.address, PORT) for node in cluster.nodes.values()], AGAIN, cluster.dice)
        group = Recreator(client, cluster.dice.fork("group"), cluster.store, cluster.nodes, 3)
        await client.create_topic(1, 3, {})
        while group.acknowledged < 0:
            await group.commit()
        opened.clear()
        leader = leader_of(cluster, "__consumer_offsets")
        leader.kill()
        await until(lambda: leader_of(cluster, "__consumer_offsets") is not leader)
        await group.delete()
        await client.create_topic(1, 2, {})
        leader.start()
        await cluster._recovered()
        opened.set()
        await group.look()
        assert group.lives == 2
        shards = [node.service.services.groups.shards for node in cluster.nodes.values()]
        tables = [shard.machine.table.offsets for held in shards for shard in held.values()]
        assert tables and not any(table.committed for table in tables)

    cluster.simulation.run(scenario)


def test_f1_a_subscription_made_again_while_its_shard_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic stays, and so does its journal: what is in there is of another subscription of that name."""

    async def play(stage: Stage) -> None:
        kafka, sqs = stage._kafka("orders", "admin"), stage._sqs("admin")
        await kafka.create_topic(1, BROKERS, CONFIGS)
        opened = gate(monkeypatch, "__queue.")
        batch = _batch([f"m{number}" for number in range(10)], -1, -1, -1, transactional=False)
        await kafka.produce(0, batch, soon())
        wanted = {"name": "all", "topics": ["orders"], "start": "earliest"}
        await sqs.rest("POST", "/api/v1/queues", wanted)
        assert len(await receive_all(sqs, "all", 10)) == 10
        opened.clear()
        home = leader_of(stage, "__queue.orders")
        home.kill()
        await until(lambda: leader_of(stage, "__queue.orders") is not home)
        await sqs.rest("DELETE", "/api/v1/queues/all?keep_topic")
        await sqs.rest("POST", "/api/v1/queues", wanted)
        opened.set()
        async with asyncio.timeout(60.0):
            assert len(await receive_all(sqs, "all", 10)) == 10

    Stage(3, play).perform()


def test_f1_a_schedule_makes_up_for_nothing_in_a_topic_made_again() -> None:
    """A tick that nobody was there for is made up for, unless it was for a topic that is gone."""

    async def play(stage: Stage) -> None:
        kafka, sqs = stage._kafka("ticks", "admin"), stage._sqs("admin")
        await kafka.create_topic(1, BROKERS, CONFIGS)
        schedule = {"name": "s", "cron": "*/2 * * * *", "topic": "ticks", "value": "tick"}
        await sqs.rest("POST", "/api/v1/schedules", schedule)
        await kafka.ask_anyone(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["ticks"]))
        await asyncio.sleep(130.0)
        await kafka.create_topic(1, BROKERS, CONFIGS)
        begun = _now()
        row = None
        while row is None or not row.records:
            assert _now() - begun < 125.0
            kafka.forget_leader(0)
            row = await kafka.fetch(0, 0)
        assert _now() - begun > 20.0, "the next full minute that is even, which is a while off with this seed"

    stage = Stage(2, play)
    stage.seconds = 600.0
    stage.perform()


def test_f1_what_becomes_of_a_dropped_replica_is_nothing_to_its_successor() -> None:
    """An answer that comes after the deletion finds a closed log. That was taken for a failed disk: the partition was reported
    offline for good, and the leadership of the new topic of that name was given away."""
    cluster = SimCluster(6, CALM)

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster)
        leader = cluster._partition_states()[0].leader
        node = next(node for number, node in cluster.nodes.items() if number != leader)
        broker = node.service.broker
        old = broker.partitions[TOPIC, 0]
        arrives = asyncio.Event()
        exchange = PeerConnection.exchange

        async def late(self: PeerConnection, key: int, *given: Any) -> Any:
            got = await exchange(self, key, *given)
            if key == ApiKey.FETCH and not old.log.failed:
                await arrives.wait()
            return got

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PeerConnection, "exchange", late)
            batch = _batch(["x"], -1, -1, -1, transactional=False)
            sent = asyncio.get_running_loop().create_task(client.produce(0, batch, soon()))
            await asyncio.sleep(2.0)  # nobody tells the leader that he has it
            life = home(cluster).rpartition("@")[2]
            request = DeleteTopicsRequest(topics=[DeleteTopicState(None, bytes.fromhex(life))])
            await client.ask_anyone(ApiKey.DELETE_TOPICS, 6, request)
            await client.create_topic(1, BROKERS, {})
            await until(lambda: broker.partitions.get((TOPIC, 0)) not in (None, old))
            begun = cluster._partition_states()[0].leader_epoch
            arrives.set()
            await asyncio.wait((sent,))
        old.mark_failed()  # whatever else may come of it
        await asyncio.sleep(5.0)
        assert not broker.replicas.offline
        assert cluster._partition_states()[0].leader_epoch == begun, "nobody has given anything away"

    cluster.simulation.run(scenario)
