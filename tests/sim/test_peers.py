"""A1, A2: what only brokers may ask is heard only from a connection that proved to be that broker, in that life.

Each story sends frames to a shipped broker of a simulated cluster, as anybody who reaches the port can (F8, F15, P12).
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import ClusterClient, _batch
from cluster_sim import PORT, TOPIC, SimCluster
from test_lease import CALM, soon, started

from headrace.broker.introductions import PeerUnproven
from headrace.broker.peer import PeerConnection, PeerLost
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.core.limits import MIB
from headrace.core.peer_proof import MECHANISM
from headrace.wire.api import ApiKey
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from headrace.wire.fetch_response import decode_fetch_response
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest
from headrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

FAR_EPOCH = 99_999
NOT_A_BROKER = ErrorKind.CLUSTER_AUTHORIZATION_FAILED


def plain(value: str) -> bytes:
    return _batch([value], -1, -1, -1, transactional=False)


async def fetch_errors(
    connection: PeerConnection,
    replica_id: int,
    *,
    version: int = 9,
    topic_id: bytes = ZERO_UUID,
    leader_epoch: int = -1,
    offset: int = 0,
    broker_epoch: int = -1,
) -> tuple[ErrorKind, ErrorKind]:
    """Of the whole fetch, and of the partition; NONE where there is no such row."""
    row = FetchPartition(0, leader_epoch, offset, -1, 0, MIB)
    topics = [FetchTopic(TOPIC, topic_id, [row])]
    request = FetchRequest(replica_id, broker_epoch, 0, 0, MIB, 0, 0, -1, topics)
    body = [encode_fetch_request(request, version)]
    frame, position = await connection.exchange(ApiKey.FETCH, version, body, 5.0)
    answer = decode_fetch_response(frame, position, version)
    rows = [part.error_code for topic in answer.topics for part in topic.partitions]
    return ErrorKind(answer.error_code), ErrorKind(rows[0] if rows else 0)


class Stage:
    """A calm cluster, its leader of partition 0, and a stranger's connection to it."""

    def __init__(self, cluster: SimCluster, client: ClusterClient) -> None:
        self.cluster = cluster
        self.client = client

    @property
    def leader(self) -> int:
        return self.cluster._partition_states()[0].leader

    @property
    def followers(self) -> list[int]:
        return [number for number in self.cluster.nodes if number != self.leader]

    def broker(self, number: int) -> Any:
        return self.cluster.nodes[number].service.broker

    @property
    def partition(self) -> Any:
        return self.broker(self.leader).partitions[(TOPIC, 0)]

    async def stranger(self) -> PeerConnection:
        return await PeerConnection.open(self.cluster.nodes[self.leader].address, PORT, "broker-2")

    async def peer(self, number: int) -> PeerConnection:
        """As broker `number` connects to the leader."""
        connected: PeerConnection = await self.broker(number).introductions.connect(self.leader)
        return connected

    def epoch_of(self, number: int) -> int:
        epoch: int = self.broker(self.leader).image.broker(number).epoch
        return epoch


def play(story: Any, seed: int = 1) -> Any:
    cluster = SimCluster(seed, CALM)

    async def scenario(_: Any) -> Any:
        stage = Stage(cluster, await started(cluster))
        await stage.client.produce(0, plain("before"), soon())
        return await story(stage)

    return cluster.simulation.run(scenario)


# -- F15: a rumour deposes nobody ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 9, 12], ids=lambda version: f"v{version}")
@pytest.mark.parametrize("replica_id", [-1, 7], ids=["a consumer", "a made-up replica"])
def test_f15_a_rumour_of_a_later_epoch_deposes_no_leader(replica_id: int, version: int) -> None:
    async def story(stage: Stage) -> None:
        connection = await stage.stranger()
        epoch = stage.partition.leader_epoch
        found = await fetch_errors(connection, replica_id, version=version, leader_epoch=FAR_EPOCH)
        if replica_id >= 0:
            assert NOT_A_BROKER in found
        elif version >= 9:
            assert found[1] is ErrorKind.UNKNOWN_LEADER_EPOCH
        assert await fetch_errors(connection, -1, version=version) == (ErrorKind.NONE, ErrorKind.NONE)
        await stage.client.produce(0, plain("after"), soon())
        assert stage.partition.leader_epoch == epoch

    play(story)


def test_f15_a_leader_that_a_peer_misled_leads_on_when_it_has_looked() -> None:
    """R31: it stops in the same tick; A2: it reads the same epoch and goes on."""

    async def story(stage: Stage) -> None:
        one = stage.followers[0]
        leader, partition, epoch = stage.leader, stage.partition, stage.partition.leader_epoch
        connection = await stage.peer(one)
        topic = stage.broker(leader).image.topic(TOPIC)
        _, refused = await fetch_errors(
            connection, one, version=17, topic_id=topic.id, leader_epoch=FAR_EPOCH, broker_epoch=stage.epoch_of(one)
        )  # fmt: skip
        assert refused is ErrorKind.UNKNOWN_LEADER_EPOCH
        await stage.client.produce(0, plain("after"), soon())
        assert (stage.leader, partition.is_leader, partition.leader_epoch) == (leader, True, epoch)

    play(story)


def test_f15_a_misled_leader_leads_on_also_when_the_coordinator_is_away_for_a_while() -> None:
    async def story(stage: Stage) -> None:
        one, leader, partition = stage.followers[0], stage.leader, stage.partition
        connection = await stage.peer(one)
        topic = stage.broker(leader).image.topic(TOPIC)
        stage.cluster.coordinators[f"b{leader}"].reachable = False
        await fetch_errors(
            connection, one, version=17, topic_id=topic.id, leader_epoch=FAR_EPOCH, broker_epoch=stage.epoch_of(one)
        )  # fmt: skip
        assert not partition.is_leader
        await asyncio.sleep(1.5)
        stage.cluster.coordinators[f"b{leader}"].reachable = True
        await stage.client.produce(0, plain("after"), soon())
        assert stage.leader == leader and partition.is_leader

    play(story)


# -- F8: a made-up follower is not counted --------------------------------------------------------------------------------


async def claims_everything(stage: Stage, connection: PeerConnection, number: int, broker_epoch: int) -> Any:
    topic = stage.broker(stage.leader).image.topic(TOPIC)
    return await fetch_errors(
        connection, number, version=17, topic_id=topic.id, offset=stage.partition.log.end_offset,
        leader_epoch=stage.partition.leader_epoch, broker_epoch=broker_epoch,
    )  # fmt: skip


def test_f8_a_made_up_follower_moves_no_high_watermark_and_locks_nobody_out() -> None:
    async def story(stage: Stage) -> None:
        leader, followers = stage.leader, stage.followers
        connection = await stage.stranger()
        for number in followers:
            stage.cluster.nodes[number].pause()
        before = stage.partition.high_watermark
        sent = asyncio.ensure_future(stage.client.produce(0, plain("alone"), soon()))
        await asyncio.sleep(0.2)
        assert stage.partition.log.end_offset > before
        for number in followers:
            for broker_epoch in (stage.epoch_of(number), 2**62, -1):
                found, _ = await claims_everything(stage, connection, number, broker_epoch)
                assert found is NOT_A_BROKER
        assert stage.partition.high_watermark == before
        for number in followers:
            stage.cluster.nodes[number].resume()
        await sent
        assert stage.leader == leader and set(stage.partition.isr) == {leader, *followers}

    play(story)


def test_f8_a_peer_speaks_for_itself_only_and_for_its_registered_life() -> None:
    async def story(stage: Stage) -> None:
        one, other = stage.followers
        connection = await stage.peer(one)
        epoch = stage.epoch_of(one)
        assert (await claims_everything(stage, connection, one, epoch))[0] is ErrorKind.NONE
        assert (await claims_everything(stage, connection, other, stage.epoch_of(other)))[0] is NOT_A_BROKER
        for claimed in (epoch - 1, epoch + 1, 2**62, -1):
            found, _ = await claims_everything(stage, connection, one, claimed)
            assert found is ErrorKind.STALE_BROKER_EPOCH

    play(story)


def test_a2_a_peer_that_registered_again_proves_itself_again() -> None:
    async def story(stage: Stage) -> None:
        one = stage.followers[0]
        connection, epoch = await stage.peer(one), stage.epoch_of(one)
        service = stage.cluster.nodes[one].service
        await service.membership.register(None)
        while stage.epoch_of(one) == epoch:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        found, _ = await claims_everything(stage, connection, one, epoch)
        assert found is ErrorKind.STALE_BROKER_EPOCH
        again = await stage.peer(one)
        assert (await claims_everything(stage, again, one, stage.epoch_of(one)))[0] is ErrorKind.NONE
        await stage.client.produce(0, plain("after"), soon())

    play(story)


# -- the other requests that only brokers send --------------------------------------------------------------------------------


async def said_to(connection: PeerConnection, key: int, version: int, request: object) -> Any:
    return await connection.call(key, version, request, 5.0)


def test_r47_a_marker_over_a_connection_that_its_sender_has_replaced_is_not_written() -> None:
    """It was sent again over the newer one, and the transaction it ended may have a successor with the same epoch."""

    async def story(stage: Stage) -> None:
        sender = stage.followers[0]
        old, new = await stage.peer(sender), await stage.peer(sender)
        request = WriteTxnMarkersRequest(
            [WritableTxnMarker(1, 0, True, [WritableTxnMarkerTopic(TOPIC, [0])], 0)]
        )
        answer = await said_to(new, ApiKey.WRITE_TXN_MARKERS, 1, request)
        assert answer.markers[0].topics[0].partitions[0].error_code == 0
        end = stage.partition.log.end_offset
        with pytest.raises(PeerLost):
            await said_to(old, ApiKey.WRITE_TXN_MARKERS, 1, request)
        assert stage.partition.log.end_offset == end

    play(story)


def test_a1_markers_verifications_and_replicas_questions_of_strangers_are_refused() -> None:
    async def story(stage: Stage) -> None:
        connection = await stage.stranger()
        end = stage.partition.log.end_offset
        # An administrator may abort (F37), but this producer has nothing open; nobody but a coordinator commits.
        for commit, expected in ((True, NOT_A_BROKER), (False, ErrorKind.INVALID_TXN_STATE)):
            marker = WritableTxnMarker(1, 0, commit, [WritableTxnMarkerTopic(TOPIC, [0])], 0)
            markers = await said_to(connection, ApiKey.WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest([marker]))
            assert markers.markers[0].topics[0].partitions[0].error_code == expected.kafka_code
        assert stage.partition.log.end_offset == end
        transaction = AddPartitionsToTxnTransaction("id", 1, 0, True, [AddPartitionsToTxnTopic(TOPIC, [0])])
        added = await said_to(
            connection, ApiKey.ADD_PARTITIONS_TO_TXN, 4, AddPartitionsToTxnRequest([transaction])
        )
        assert added.error_code == NOT_A_BROKER.kafka_code
        for replica, expected in ((-1, ErrorKind.NONE), (-2, ErrorKind.NONE), (7, NOT_A_BROKER)):
            listed = await said_to(
                connection, ApiKey.LIST_OFFSETS, 5,
                ListOffsetsRequest(replica, 0, [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1, -1)])]),
            )  # fmt: skip
            assert listed.topics[0].partitions[0].error_code == expected.kafka_code
            told = await said_to(
                connection, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4,
                OffsetForLeaderEpochRequest(replica, [OffsetForLeaderTopic(TOPIC, [OffsetForLeaderPartition(0, -1, 0)])]),
            )  # fmt: skip
            assert told.topics[0].partitions[0].error_code == expected.kafka_code

    play(story)


# -- the proof itself, over the wire -----------------------------------------------------------------------------------------


def test_a49_a_caller_without_the_clusters_key_is_nobody() -> None:
    async def story(stage: Stage) -> None:
        one = stage.followers[0]
        introductions = stage.broker(one).introductions
        introductions._key = bytes(32)
        with pytest.raises(PeerUnproven):
            await stage.peer(one)

    play(story)


def test_a49_a_recorded_proof_is_of_no_use() -> None:
    """What a broker said on one connection, said again on another: the nonce is another one."""

    async def story(stage: Stage) -> None:
        one = stage.followers[0]
        spoken: list[bytes] = []
        exchange = stage.broker(one).introductions._exchange

        async def recorded(connection: PeerConnection, token: bytes) -> bytes:
            spoken.append(token)
            answer: bytes = await exchange(connection, token)
            return answer

        stage.broker(one).introductions._exchange = recorded
        await stage.peer(one)
        connection = await stage.stranger()
        await said_to(connection, ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(MECHANISM))
        hello, proof = spoken[-2:]
        assert (
            await said_to(connection, ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(hello))
        ).error_code == 0
        answer = await said_to(connection, ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(proof))
        assert answer.error_code == ErrorKind.SASL_AUTHENTICATION_FAILED.kafka_code
        assert (await claims_everything(stage, connection, one, stage.epoch_of(one)))[0] is NOT_A_BROKER

    play(story)
