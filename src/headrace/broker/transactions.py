"""Driver: the transaction coordinator of this broker, on the partitions of `__transaction_state` that it leads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from headrace.broker.connections import Connections
from headrace.broker.internal_topics import TRANSACTIONS_TOPIC, InternalTopics
from headrace.broker.markers import MarkerSender, TransactionLoad
from headrace.broker.partition import Partition
from headrace.broker.peer import PeerLost
from headrace.broker.peers import Peers
from headrace.broker.runtime import Runtime
from headrace.broker.shard_set import ShardSet
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.plan import AnyCommand, WallClock
from headrace.transactions.commands import (
    AddOffsets,
    AddPartitions,
    CloseConnection,
    EndTxn,
    InitProducerId,
    ProducerIdentity,
    SendMarkers,
    TransactionEffect,
    VerifyPartitions,
)
from headrace.transactions.config import TransactionConfig
from headrace.transactions.shard import TransactionShard
from headrace.wire.api import ApiKey
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

BROKER_VERSION = 5
"""Of AddPartitionsToTxn between brokers (KIP-890)."""

_COORDINATOR_AWAY = (
    ErrorKind.NOT_COORDINATOR,
    ErrorKind.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorKind.COORDINATOR_NOT_AVAILABLE,
    ErrorKind.CONCURRENT_TRANSACTIONS,
    ErrorKind.NETWORK_EXCEPTION,
    # We lead the partition that we ask about; a coordinator that has not heard of it yet knows less than we do.
    ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorKind.OPERATION_NOT_ATTEMPTED,
)


class Transactions(ShardSet[TransactionShard, TransactionEffect]):
    def __init__(
        self,
        runtime: Runtime,
        image: ClusterImage,
        internal_topics: InternalTopics,
        connections: Connections,
        peers: Peers,
        markers: MarkerSender,
    ) -> None:
        super().__init__(runtime, TRANSACTIONS_TOPIC, internal_topics, self._new_machine, self._carry_out)
        self._clock = runtime.clock
        self._image = image
        self._connections = connections
        self._peers = peers
        self._markers = markers

    def _new_machine(self, partition: Partition) -> TransactionShard:
        clock = self._clock
        config = TransactionConfig(
            offsets_partitions=self._internal_topics.offsets_partition_count(),
            connection_fencing=self._connections.fencing,
        )
        return TransactionShard(
            config,
            coordinator_epoch=partition.leader_epoch,
            connection_floor=self._connections.newest_id,
            wall_minus_now_ms=clock.wall_ms() - clock.now_ms(),
        )

    def confirms(self, command: AnyCommand | None, answer: object) -> bool:
        """R42, R44: "that has happened already" and "that can't happen" are said only by the coordinator there is now.

        So is "there is no such producer" to a partition leader, which ends a producer that is alive (R45, F84)."""
        if isinstance(answer, dict):
            return isinstance(command, VerifyPartitions) and any(
                error is not ErrorKind.NONE and not error.info.retriable for error in answer.values()
            )
        if not isinstance(command, (EndTxn, AddPartitions, AddOffsets, InitProducerId)):
            return False
        error = answer.error if isinstance(answer, ProducerIdentity) else answer
        return isinstance(error, ErrorKind) and (error is ErrorKind.NONE or not error.info.retriable)

    def _carry_out(self, load: TransactionLoad, effect: TransactionEffect) -> None:
        if isinstance(effect, SendMarkers):
            self._markers.send(load, effect)
        elif isinstance(effect, CloseConnection):
            self._connections.close(effect.connection_id)
        else:
            assert_never(effect)

    def tell_wall_clock(self) -> None:
        self.tell_loaded(WallClock(self._clock.wall_ms()))

    async def confirm(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        add: bool,
    ) -> ErrorKind:
        """R45: are these partitions in the producer's open transaction? With `add` they are put there (KIP-890, v2).

        Answered by whichever broker coordinates the id. When it can't answer now, the error is one that producers of
        every age retry.
        """
        wanted = frozenset(partitions)
        try:
            error = await self._confirm(transactional_id, producer_id, producer_epoch, wanted, add)
        except HeadraceError as problem:
            error = problem.kind
        return ErrorKind.NOT_ENOUGH_REPLICAS if error in _COORDINATOR_AWAY else error

    async def _confirm(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        wanted: frozenset[TopicPartition],
        add: bool,
    ) -> ErrorKind:
        number = self.number_of(transactional_id)
        if number is None:
            return ErrorKind.COORDINATOR_NOT_AVAILABLE  # the topic of all coordinators is news to us (F84)
        if number in self.shards:
            what = (transactional_id, producer_id, producer_epoch, wanted)
            if add:
                return await self.ask(transactional_id, AddPartitions(*what))
            return _worst((await self.ask(transactional_id, VerifyPartitions(*what))).values())
        leader = self._image.leader(TRANSACTIONS_TOPIC, number)
        if leader is None:
            return ErrorKind.COORDINATOR_NOT_AVAILABLE
        topics: dict[str, list[int]] = {}
        for tp in sorted(wanted):
            topics.setdefault(tp.topic, []).append(tp.partition)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id,
            producer_id,
            producer_epoch,
            not add,
            [AddPartitionsToTxnTopic(name, numbers) for name, numbers in topics.items()],
        )
        try:
            response: AddPartitionsToTxnResponse = await self._peers.call(
                leader.id,
                ApiKey.ADD_PARTITIONS_TO_TXN,
                BROKER_VERSION,
                AddPartitionsToTxnRequest([transaction]),
            )
        except PeerLost:
            return ErrorKind.NETWORK_EXCEPTION
        if response.error_code:
            # It does not take us for a broker, or for this life of ours, yet: nothing a client should hear of.
            return ErrorKind.NETWORK_EXCEPTION
        rows = [
            ErrorKind(row.partition_error_code)
            for result in response.results_by_transaction
            for topic in result.topic_results
            for row in topic.results_by_partition
        ]
        return _worst(rows)


def _worst(errors: Iterable[ErrorKind]) -> ErrorKind:
    """One answer for all partitions of a request: any trouble is everybody's."""
    return next((error for error in errors if error is not ErrorKind.NONE), ErrorKind.NONE)
