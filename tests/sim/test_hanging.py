"""F37, decision 0027: an administrator's abort finds the transaction's coordinator, wherever it is in the cluster."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import _batch
from cluster_sim import PORT, TOPIC
from test_lease import soon
from test_peers import Stage, play, said_to

from headrace.broker.peer import PeerConnection
from headrace.core.errors import ErrorKind
from headrace.wire.api import ApiKey
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.wire.messages.end_txn import EndTxnRequest
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


async def elsewhere(stage: Stage) -> tuple[str, PeerConnection]:
    """A transactional id whose coordinator is not the partition's leader, and a connection to that one."""
    stranger = await stage.stranger()
    while True:
        found = await said_to(stranger, ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest("id", 1))
        if found.error_code == 0 and found.node_id != stage.leader:
            address = stage.cluster.nodes[found.node_id].address
            return "id", await PeerConnection.open(address, PORT, "producer")
        if found.error_code == 0:
            await stage.client.move("__transaction_state", 0, [*stage.followers, stage.leader])
            await stage.client.elect_preferred("__transaction_state", 0)
        await asyncio.sleep(0.1)


def test_f37_a_transaction_of_another_broker_is_aborted_there() -> None:
    async def story(stage: Stage) -> None:
        name, coordinator = await elsewhere(stage)
        while True:
            made = await said_to(coordinator, ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(name, 60_000))
            if made.error_code == 0:
                break
        who = (made.producer_id, made.producer_epoch)
        added = await said_to(
            coordinator,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            AddPartitionsToTxnRequest([], name, *who, [AddPartitionsToTxnTopic(TOPIC, [0])]),
        )
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        start = stage.partition.log.end_offset
        await stage.client.produce(0, _batch(["open"], *who, 0, transactional=True), soon(), name)
        assert stage.partition.last_stable_offset == start

        marker = WritableTxnMarker(*who, False, [WritableTxnMarkerTopic(TOPIC, [0])], 0)
        stranger = await stage.stranger()
        answer = await stranger.call(ApiKey.WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest([marker]), 60.0)
        assert answer.markers[0].topics[0].partitions[0].error_code == 0
        assert not stage.partition.log.producers.has_open_transaction(*who)
        ended = await said_to(coordinator, ApiKey.END_TXN, 3, EndTxnRequest(name, *who, True))
        assert ended.error_code == ErrorKind.PRODUCER_FENCED.kafka_code, "it can no longer commit the rest"

    play(story)
