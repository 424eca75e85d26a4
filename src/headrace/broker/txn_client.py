"""Driver: a transaction of the broker's own, run through the same doors a client uses (R60).

The coordinator of the id and the leaders of the partitions may be anywhere, this broker included; all of them are asked
over the Kafka protocol, so there is one way to do it and it is the one that is tested with clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from headrace.broker.coordinators import TRANSACTION, Coordinators
from headrace.broker.peers import Peers
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import ZERO_UUID, TopicPartition
from headrace.core.ports import Buffer
from headrace.wire.api import ApiKey
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from headrace.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.produce import ProducePartition, ProduceRequest, ProduceTopic

TIMEOUT_MS = 30_000
RETRY_S = 0.05
FIRST_LOOK_S = 0.002
ATTEMPTS = 100
_ENDING = ("PrepareCommit", "PrepareAbort")
_AGAIN = (
    ErrorKind.CONCURRENT_TRANSACTIONS,
    ErrorKind.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorKind.COORDINATOR_NOT_AVAILABLE,
    ErrorKind.NOT_COORDINATOR,
)


class TransactionClient:
    """One transactional id. `begin` fences whoever used it before and settles what they left open."""

    def __init__(
        self, image: ClusterImage, peers: Peers, coordinators: Coordinators, transactional_id: str
    ) -> None:
        self._image = image
        self._peers = peers
        self._coordinators = coordinators
        self._id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    async def begin(self) -> None:
        await self._coordinators.find(self._id, TRANSACTION)
        request = InitProducerIdRequest(self._id, TIMEOUT_MS)
        for _ in range(ATTEMPTS):
            response: InitProducerIdResponse = await self._ask(ApiKey.INIT_PRODUCER_ID, 4, request)
            kind = ErrorKind(response.error_code)
            if kind is ErrorKind.NONE:
                self.producer_id, self.epoch = response.producer_id, response.producer_epoch
                self._sequences.clear()
                return
            if kind not in _AGAIN:
                raise HeadraceError(kind, f"no producer id for {self._id}")
            await asyncio.sleep(RETRY_S)
        raise HeadraceError(ErrorKind.REQUEST_TIMED_OUT, f"no producer id for {self._id}")

    async def add(self, partitions: Iterable[TopicPartition]) -> None:
        topics: dict[str, list[int]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(tp.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name, numbers) for name, numbers in topics.items()],
        )
        for _ in range(ATTEMPTS):
            response: AddPartitionsToTxnResponse = await self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
            kinds = {
                ErrorKind(row.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            }
            if kinds == {ErrorKind.NONE}:
                return
            if not kinds & set(_AGAIN):
                raise HeadraceError(kinds.pop(), f"{self._id} can't add partitions")
            await asyncio.sleep(RETRY_S)
        raise HeadraceError(ErrorKind.REQUEST_TIMED_OUT, f"{self._id} can't add partitions")

    def next_sequence(self, tp: TopicPartition, count: int) -> int:
        sequence = self._sequences.get(tp, 0)
        self._sequences[tp] = sequence + count
        return sequence

    async def produce(self, tp: TopicPartition, batch: Buffer) -> int:
        """The batch's base offset. The caller built it with our producer id, epoch and `next_sequence`."""
        leader = self._image.leader(*tp)
        if leader is None:
            raise HeadraceError(ErrorKind.LEADER_NOT_AVAILABLE, f"{tp} has no leader")
        request = ProduceRequest(
            self._id,
            -1,
            TIMEOUT_MS,
            [ProduceTopic(tp.topic, ZERO_UUID, [ProducePartition(tp.partition, batch)])],
        )
        response = await self._peers.call(leader.id, ApiKey.PRODUCE, 9, request, TIMEOUT_MS / 1000)
        row = response.topics[0].partitions[0]
        if row.error_code:
            raise HeadraceError(ErrorKind(row.error_code), f"{tp}: {row.error_message or 'not taken'}")
        offset: int = row.base_offset
        return offset

    async def end(self, *, commit: bool) -> None:
        """Raises when it did not happen; PeerLost when nobody knows, and then the next `begin` settles it."""
        request = EndTxnRequest(self._id, self.producer_id, self.epoch, commit)
        for _ in range(ATTEMPTS):
            response: EndTxnResponse = await self._ask(ApiKey.END_TXN, 3, request)
            kind = ErrorKind(response.error_code)
            if kind is ErrorKind.NONE:
                return
            if kind not in _AGAIN:
                raise HeadraceError(kind, f"{self._id} could not be ended")
            await asyncio.sleep(RETRY_S)
        raise HeadraceError(ErrorKind.REQUEST_TIMED_OUT, f"{self._id} could not be ended")

    async def marked(self) -> None:
        """Wait until an end that was answered is known in every partition: what was committed can be read there."""
        pause_s = FIRST_LOOK_S
        request = DescribeTransactionsRequest([self._id])
        while True:
            response: DescribeTransactionsResponse = await self._ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
            if not any(row.transaction_state in _ENDING for row in response.transaction_states):
                return
            await asyncio.sleep(pause_s)
            pause_s = min(RETRY_S, 2 * pause_s)

    async def _ask(self, key: int, version: int, request: object) -> Any:
        node = self._coordinators.of_transaction(self._id)
        return await self._peers.call(node.id, key, version, request)
