"""Driver: an administrator ends a transaction on a partition, as kafka-transactions.sh does with WriteTxnMarkers (decision 0027).

A marker written here while a coordinator still knows the transaction would tear it: aborted on this partition, committed on
the others. So the coordinators are asked first. Who knows it aborts it, on all of its partitions, and fences its producer (R51);
only a transaction that nobody knows, which is what "hanging" means, gets its marker from here.
"""

from __future__ import annotations

import asyncio

from headrace.broker.internal_topics import TRANSACTIONS_TOPIC
from headrace.broker.load import setter
from headrace.broker.markers import RETRY_S, Markers
from headrace.broker.partition import Partition
from headrace.broker.peer import PeerLost
from headrace.broker.peers import Peers
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.transactions import Transactions
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ports import Clock
from headrace.transactions.commands import InitProducerId, ListResult, ListTransactions
from headrace.transactions.state import PREPARED, TransactionState
from headrace.wire.api import ApiKey
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

ABORT_MS = 20_000
"""How long an administrator waits for the coordinator's markers before he is told to ask again."""
_OPEN = frozenset(state.label for state in PREPARED | {TransactionState.ONGOING})


class HangingTransactions:
    def __init__(
        self,
        clock: Clock,
        image: ClusterImage,
        transactions: Transactions,
        markers: Markers,
        producer_ids: ProducerIds,
        peers: Peers,
    ) -> None:
        self._clock = clock
        self._image = image
        self._transactions = transactions
        self._markers = markers
        self._producer_ids = producer_ids
        self._peers = peers

    async def abort(
        self, partition: Partition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> ErrorKind:
        """End the transaction that this producer has open here in this epoch."""
        if (refused := _refusal(partition, producer_id, producer_epoch, coordinator_epoch)) is not None:
            return refused
        producers = partition.log.producers
        producer = producers.get(producer_id)
        assert producer is not None
        start = producer.transaction_start
        clock = self._clock
        deadline_ms = clock.now_ms() + ABORT_MS
        while clock.now_ms() < deadline_ms:
            try:
                known = await self._coordinated(producer_id)
                if (refused := partition.refusal(-1)) is not None:
                    return refused
                producer = producers.get(producer_id)
                if producer is None or (producer.epoch, producer.transaction_start) != (
                    producer_epoch,
                    start,
                ):
                    return ErrorKind.NONE  # it has ended, by whomever
                if not known:
                    # The epoch of the last coordinator stays: an administrator must not shut out the next one (R43).
                    written: asyncio.Future[ErrorKind] = asyncio.get_running_loop().create_future()
                    epoch = max(producer.coordinator_epoch, 0)
                    self._markers.write(
                        partition, producer_id, producer_epoch, epoch, commit=False, done=setter(written)
                    )
                    return await written
                for transactional_id in known:
                    await self._fence(transactional_id, producer_id, producer_epoch)
            except HeadraceError as problem:
                return problem.kind
            except PeerLost:
                return ErrorKind.COORDINATOR_NOT_AVAILABLE
            await asyncio.sleep(RETRY_S)
        return ErrorKind.REQUEST_TIMED_OUT

    async def _coordinated(self, producer_id: int) -> set[str]:
        """The transactional ids under which a coordinator has something open for this producer. Raises when one can't be asked."""
        leaders = self._leaders()
        found: set[str] = set()
        for leader in sorted({leader for leader, _ in leaders}):
            if leader < 0:
                raise HeadraceError(ErrorKind.COORDINATOR_NOT_AVAILABLE)
            found |= await self._coordinated_by(leader, producer_id)
        if leaders != self._leaders():
            raise HeadraceError(ErrorKind.COORDINATOR_NOT_AVAILABLE)  # one may have moved past our question
        return found

    def _leaders(self) -> list[tuple[int, int]]:
        """Who coordinates transactions, each in its epoch; nobody when there never was a transaction."""
        topic = self._image.topic(TRANSACTIONS_TOPIC)
        states = () if topic is None else topic.partitions
        return [(-1, -1) if state is None else (state.leader, state.leader_epoch) for state in states]

    async def _coordinated_by(self, leader: int, producer_id: int) -> set[str]:
        if leader == self._image.broker_id:
            answers: list[ListResult] = await self._transactions.ask_all(
                ListTransactions(_OPEN, frozenset((producer_id,)))
            )
            return {entry.transactional_id for answer in answers for entry in answer.transactions}
        request = ListTransactionsRequest(sorted(_OPEN), [producer_id])
        response: ListTransactionsResponse = await self._peers.call(
            leader, ApiKey.LIST_TRANSACTIONS, 0, request
        )
        if response.error_code:
            raise HeadraceError(ErrorKind(response.error_code))
        return {entry.transactional_id for entry in response.transaction_states}

    async def _fence(self, transactional_id: str, producer_id: int, producer_epoch: int) -> None:
        """R51, by the way that every producer of that id has: who starts anew ends what is open. The answer says nothing new."""
        number = self._transactions.number_of(transactional_id)
        leader = None if number is None else self._image.leader(TRANSACTIONS_TOPIC, number)
        if leader is None:
            raise HeadraceError(ErrorKind.COORDINATOR_NOT_AVAILABLE)
        if leader.id != self._image.broker_id:
            request = InitProducerIdRequest(transactional_id, ABORT_MS, producer_id, producer_epoch)
            await self._peers.call(leader.id, ApiKey.INIT_PRODUCER_ID, 4, request)
            return
        spare = await self._producer_ids.take()
        await self._transactions.ask(
            transactional_id,
            InitProducerId(transactional_id, ABORT_MS, spare, producer_id, producer_epoch),
        )


def _refusal(
    partition: Partition, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> ErrorKind | None:
    if (refused := partition.refusal(-1)) is not None:
        return refused
    producer = partition.log.producers.get(producer_id)
    if producer is None or producer.transaction_start < 0:
        return ErrorKind.INVALID_TXN_STATE
    if producer.epoch != producer_epoch:
        return ErrorKind.INVALID_PRODUCER_EPOCH
    if coordinator_epoch < producer.coordinator_epoch:
        return ErrorKind.TRANSACTION_COORDINATOR_FENCED
    return None
