"""Rules that live in drivers, each with the story in which it is needed, told twice: with the rule, and without it.

The second telling is the mutant: it shows that the first one would notice. Rules of the pure machines have theirs in
tests/property/test_replication_mutants.py, and those that chance finds in cluster_mutants.py.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import ClusterClient, Gone, _batch
from cluster_sim import PORT, TOPIC, Shape, SimCluster
from test_lease import CALM, soon, started

from headrace.broker import fetch, housekeeping
from headrace.broker.load import Load, ShardState
from headrace.broker.partition import Partition
from headrace.broker.peer import PeerConnection
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.core.limits import MIB
from headrace.log.partition_log import PartitionLog
from headrace.node import membership
from headrace.replication.events import Stalled, Tick
from headrace.replication.leader import Leader
from headrace.wire.api import ApiKey
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from headrace.wire.fetch_response import FetchPartitionResponse, decode_fetch_response
from headrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)

T = TypeVar("T")
Story = Callable[[SimCluster, ClusterClient], Coroutine[Any, Any, T]]


def told(story: Story[T], seed: int = 1, shape: Shape = CALM) -> T:
    cluster = SimCluster(seed, shape)

    async def scenario(_: Any) -> T:
        return await story(cluster, await started(cluster))

    return cluster.simulation.run(scenario)


def plain(value: str) -> bytes:
    return _batch([value], -1, -1, -1, transactional=False)


async def connect(cluster: SimCluster, number: int) -> PeerConnection:
    return await PeerConnection.open(cluster.nodes[number].address, PORT, "test")


def leader_and_followers(cluster: SimCluster) -> tuple[int, list[int]]:
    leader = cluster._partition_states()[0].leader
    return leader, [number for number in cluster.nodes if number != leader]


# -- R6: a broker whose disk hangs stops saying that it is alive ----------------------------------------------------------


async def hanging_disk(cluster: SimCluster, client: ClusterClient) -> bool:
    """Whether the partition could be written again, by another leader, while the disk of the first one hung."""
    await client.produce(0, plain("before"), soon())
    leader, _ = leader_and_followers(cluster)
    cluster.nodes[leader].hang_disk(90.0)
    try:
        await client.produce(0, plain("after"), asyncio.get_running_loop().time() + 60.0)
    except Gone:
        return False
    return cluster._partition_states()[0].leader != leader


def test_r6_a_leader_whose_disk_hangs_is_replaced() -> None:
    assert told(hanging_disk)


def test_r6_one_that_renews_its_lease_all_the_same_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    made = membership.Membership.__init__

    def always_well(self: Any, *args: Any, **named: Any) -> None:
        made(self, *args, **{**named, "making_progress": lambda: True})

    monkeypatch.setattr(membership.Membership, "__init__", always_well)
    assert not told(hanging_disk)


# -- R15: after a stall the followers are excused before anybody is judged --------------------------------------------------


async def waking_leader(cluster: SimCluster, client: ClusterClient) -> type:
    """The first thing that the leader's machine hears of the time that passed while its process stood still."""
    await client.produce(0, plain("before"), soon())
    leader, _ = leader_and_followers(cluster)
    machine = cluster._replica(cluster.nodes[leader], 0)._leader
    heard: list[type] = []
    step = Leader.step

    def listen(self: Leader, event: Any, now_ms: int) -> Any:
        if self is machine and isinstance(event, (Tick, Stalled)):
            heard.append(type(event))
        return step(self, event, now_ms)

    cluster.nodes[leader].pause()
    await asyncio.sleep(4.0)
    Leader.step = listen  # type: ignore[method-assign]
    try:
        cluster.nodes[leader].resume()
        while not heard:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    finally:
        Leader.step = step  # type: ignore[method-assign]
    return heard[0]


def test_r15_a_leader_that_wakes_excuses_its_followers_first() -> None:
    assert told(waking_leader) is Stalled


def test_r15_one_that_does_not_notice_its_sleep_judges_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "STALL_MS", 10**9)
    assert told(waking_leader) is Tick


# -- R19: consumers read what is committed, and nobody says where the log ends before it is known --------------------------------


async def read_of_the_uncommitted(cluster: SimCluster, client: ClusterClient) -> int:
    """How many bytes a consumer gets of what no follower has."""
    await client.produce(0, plain("committed"), soon())
    leader, followers = leader_and_followers(cluster)
    await asyncio.sleep(1.0)
    for follower in followers:
        cluster.simulation.network.cut(f"b{leader}", f"b{follower}")
    pending = asyncio.get_running_loop().create_task(client.produce(0, plain("pending"), soon()))
    await asyncio.sleep(1.0)
    replica = cluster._replica(cluster.nodes[leader], 0)
    assert (replica.log.end_offset, replica.high_watermark) == (2, 1)
    row = await fetch_from(cluster, leader, offset=1)
    cluster.simulation.network.heal()
    await pending
    return len(row.records or b"")


async def fetch_from(cluster: SimCluster, number: int, offset: int) -> FetchPartitionResponse:
    part = FetchPartition(0, -1, offset, -1, -1, MIB)
    request = FetchRequest(-1, -1, 0, 1, MIB, 0, 0, -1, [FetchTopic(TOPIC, ZERO_UUID, [part])])
    connection = await connect(cluster, number)
    frame, at = await connection.exchange(ApiKey.FETCH, 11, [encode_fetch_request(request, 11)], 10.0)
    return decode_fetch_response(frame, at, 11).topics[0].partitions[0]


def test_r19_consumers_read_what_is_committed() -> None:
    assert told(read_of_the_uncommitted) == 0


def test_r19_without_the_limit_they_read_more(monkeypatch: pytest.MonkeyPatch) -> None:
    class Everybody(fetch.FetchReader):
        is_replica = property(lambda self: True)

    read_one = fetch.read_one
    monkeypatch.setattr(fetch, "read_one", lambda target, limit, _: read_one(target, limit, Everybody()))
    assert told(read_of_the_uncommitted) > 0


async def end_of_a_log_that_nobody_knows(cluster: SimCluster, client: ClusterClient) -> tuple[ErrorKind, int]:
    """What a new leader says is the end, which holds a record that may or may not be committed."""
    await client.produce(0, plain("committed"), soon())
    leader, (heir, other) = leader_and_followers(cluster)
    await asyncio.sleep(1.0)
    network = cluster.simulation.network
    for number in (leader, heir):
        network.cut(f"b{other}", f"b{number}")
    pending = asyncio.get_running_loop().create_task(client.produce(0, plain("pending"), soon()))
    while cluster._replica(cluster.nodes[heir], 0).log.end_offset < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    # Wherever the election goes, the two that are left can't hear each other.
    cluster.nodes[leader].kill()
    while cluster._partition_states()[0].leader not in (heir, other):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    elected = cluster._partition_states()[0].leader
    while not cluster._replica(cluster.nodes[elected], 0).is_leader:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    answer = await latest(cluster, elected)
    known = elected != heir
    cluster.nodes[leader].start()
    network.heal()
    await pending
    assert not known, "this seed elects the one that has the record"
    return answer


async def latest(cluster: SimCluster, number: int) -> tuple[ErrorKind, int]:
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1, -1)])])
    answer = await (await connect(cluster, number)).call(ApiKey.LIST_OFFSETS, 5, request, 10.0)
    row = answer.topics[0].partitions[0]
    return ErrorKind(row.error_code), row.offset


def first_seed(story: Story[Any]) -> int:
    for seed in range(1, 20):
        try:
            told(story, seed)
            return seed
        except AssertionError as problem:
            if "this seed" not in str(problem):
                raise
    raise AssertionError("no seed elects the one that has the record")


def test_r19_the_end_is_not_told_before_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = first_seed(end_of_a_log_that_nobody_knows)
    assert told(end_of_a_log_that_nobody_knows, seed)[0] is ErrorKind.OFFSET_NOT_AVAILABLE
    monkeypatch.setattr(Leader, "latest_offset_refusal", lambda self: None)
    assert told(end_of_a_log_that_nobody_knows, seed)[0] is ErrorKind.NONE, "and the mutant tells it"


# -- R21: coordinators load what is committed, and answer after that -----------------------------------------------------------


async def coordinator_that_knows_nothing(cluster: SimCluster, client: ClusterClient) -> ShardState:
    """The state of a shard whose partition has a leader that can't commit anything yet."""
    from cluster_client import OffsetKeeper
    from cluster_invariants import Place

    place = Place("__consumer_offsets", 0)
    keeper = OffsetKeeper(client, cluster.dice.fork("keeper"), 1, TOPIC)
    await keeper._commit(0)
    old = cluster.invariants.states()[place].leader
    heir, other = (number for number in cluster.nodes if number != old)
    network = cluster.simulation.network
    for number in (old, heir):
        network.cut(f"b{other}", f"b{number}")
    pending = asyncio.get_running_loop().create_task(keeper._commit(0))
    end = cluster.invariants.replica(cluster.nodes[heir], place).log.end_offset
    while cluster.invariants.replica(cluster.nodes[heir], place).log.end_offset == end:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    cluster.nodes[old].kill()
    while cluster.invariants.states()[place].leader not in (heir, other):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    elected = cluster.invariants.states()[place].leader
    await asyncio.sleep(0.3)
    state = cluster.nodes[elected].service.services.groups.shards[0].state
    cluster.nodes[old].start()
    network.heal()
    await pending
    assert elected == heir, "this seed elects the one that has the record"
    return ShardState(state)


def test_r21_a_coordinator_answers_nobody_before_it_knows_what_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seed = first_seed(coordinator_that_knows_nothing)
    assert told(coordinator_that_knows_nothing, seed) is ShardState.LOADING

    async def at_once(*_: Any) -> None:
        pass

    monkeypatch.setattr(Partition, "wait_leader_ready", at_once)
    monkeypatch.setattr(Load, "_wait_committed", at_once)
    with pytest.raises(AssertionError):
        assert told(coordinator_that_knows_nothing, seed) is ShardState.LOADING


# -- R10: an epoch begins on disk before anybody leads in it ---------------------------------------------------------------------


async def epoch_on_disk(cluster: SimCluster, client: ClusterClient) -> bool:
    """Whether each epoch of the partition was on the leader's disk before it wrote anything in it."""
    for _ in range(3):
        await client.elect_preferred(TOPIC, 0)
        leader, followers = leader_and_followers(cluster)
        await client.move(TOPIC, 0, [*followers, leader])
        await asyncio.sleep(2.0)
        await client.elect_preferred(TOPIC, 0)
        await asyncio.sleep(1.0)
    leader, _ = leader_and_followers(cluster)
    return bool(cluster._replica(cluster.nodes[leader], 0).log.epochs.latest >= 0)


def test_r10_an_epoch_begins_on_disk_before_anybody_leads_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(epoch_on_disk)
    monkeypatch.setattr(PartitionLog, "start_epoch", lambda self, epoch: None)
    assert not told(epoch_on_disk), "and without the rule it is in memory at best"


# -- R34: a topic is its id, not its name --------------------------------------------------------------------------------------


async def fetch_of_another_topic(cluster: SimCluster, client: ClusterClient) -> tuple[ErrorKind, ErrorKind]:
    """A replica asks by the right id, and by that of a topic that had the same name once."""
    await client.produce(0, plain("new"), soon())
    leader, (follower, _) = leader_and_followers(cluster)
    replica = cluster._replica(cluster.nodes[leader], 0)
    epoch = cluster.nodes[leader].service.broker.image.broker(follower).epoch
    answers = []
    for topic_id in (replica.topic_id, b"\x07" * 16):
        part = FetchPartition(0, replica.leader_epoch, 0, -1, 0, MIB)
        request = FetchRequest(follower, epoch, 0, 1, MIB, 0, 0, -1, [FetchTopic("", topic_id, [part])])
        connection = await cluster.nodes[follower].service.broker.introductions.connect(leader)
        frame, at = await connection.exchange(ApiKey.FETCH, 17, [encode_fetch_request(request, 17)], 10.0)
        row = decode_fetch_response(frame, at, 17).topics[0].partitions[0]
        answers.append(ErrorKind(row.error_code))
    return answers[0], answers[1]


def test_r34_a_fetch_by_the_id_of_an_earlier_topic_gets_nothing() -> None:
    assert told(fetch_of_another_topic) == (ErrorKind.NONE, ErrorKind.UNKNOWN_TOPIC_ID)


# -- R18: who waits is told at once when the leadership ends ----------------------------------------------------------------------


async def waiting_when_the_leadership_ends(
    cluster: SimCluster, client: ClusterClient
) -> tuple[ErrorKind, float]:
    """What a producer hears whose record no follower has, and how long after its leader was relieved."""
    leader, followers = leader_and_followers(cluster)
    for follower in followers:
        cluster.simulation.network.cut(f"b{leader}", f"b{follower}")
    waiting = asyncio.get_running_loop().create_task(produce_to(cluster, leader, plain("x"), wait_ms=30_000))
    await asyncio.sleep(0.5)
    client._addresses = [(cluster.nodes[number].address, PORT) for number in followers]
    await client.move(TOPIC, 0, [*followers, leader])
    while cluster._partition_states()[0].leader == leader:
        await client.elect_preferred(TOPIC, 0)
        await asyncio.sleep(0.1)
    relieved = asyncio.get_running_loop().time()
    kind = await waiting
    cluster.simulation.network.heal()
    return kind, asyncio.get_running_loop().time() - relieved


async def produce_to(cluster: SimCluster, number: int, batch: bytes, wait_ms: int = 3_000) -> ErrorKind:
    part = ProducePartition(0, bytearray(batch))
    request = ProduceRequest(None, -1, wait_ms, [ProduceTopic(TOPIC, ZERO_UUID, [part])])
    connection = await connect(cluster, number)
    frame, at = await connection.exchange(ApiKey.PRODUCE, 9, encode_produce_request(request, 9), 60.0)
    return ErrorKind(decode_produce_response(frame, at, 9).topics[0].partitions[0].error_code)


def test_r18_who_waits_hears_at_once_that_the_leadership_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, seconds = told(waiting_when_the_leadership_ends)
    assert kind is ErrorKind.NOT_LEADER_OR_FOLLOWER and seconds < 1.0
    monkeypatch.setattr(Partition, "_fail_waiting", lambda self, kind: None)
    kind, seconds = told(waiting_when_the_leadership_ends)
    assert kind is not ErrorKind.NONE and seconds > 10.0, "and without the rule it waits until its time is up"


# -- R7, R39: only the leader there is ends a producer ------------------------------------------------------------------------------


async def sequence_that_the_old_leader_missed(cluster: SimCluster, client: ClusterClient) -> ErrorKind:
    """A replaced leader that has not heard of it gets the batch after one that its successor took."""

    def batch(sequence: int) -> bytes:
        return _batch([f"{sequence}"], 7_000, 0, sequence, transactional=False)

    await client.produce(0, batch(0), soon())
    old, others = leader_and_followers(cluster)
    cluster.coordinators[f"b{old}"].reachable = False
    client._addresses = [(cluster.nodes[number].address, PORT) for number in others]
    await client.move(TOPIC, 0, [*others, old])
    while cluster._partition_states()[0].leader == old:
        await client.elect_preferred(TOPIC, 0)
        await asyncio.sleep(0.1)
    client.forget_leader(0)
    while (await client.leader(0))[0] == cluster.nodes[old].address:
        client.forget_leader(0)
        await asyncio.sleep(0.1)
    await client.produce(0, batch(1), soon())
    return await produce_to(cluster, old, batch(2))


def test_r39_a_replaced_leader_ends_no_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(sequence_that_the_old_leader_missed).info.retriable
    monkeypatch.setattr(Partition, "_may_refuse", lambda self, header: True)
    assert told(sequence_that_the_old_leader_missed) is ErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER
