"""Driver: one transaction of a Spark task: its records and "batch N is done by me" become visible together or not at all.

The note is a record of the ledger in the same transaction (`ledger`). InitProducerId fences whoever else holds the transactional id, so a task that was
believed dead and wakes up again can't write.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.spark.producer import Identity, Producer
from headrace.spark.sync_client import (
    TRANSACTION,
    SyncClient,
    check,
    error_of,
)
from headrace.wire.api import ApiKey
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.wire.messages.end_txn import EndTxnRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest


class SinkTransaction:
    """Open from construction. `commit` ends it; leaving the block without it aborts.

    A producer that committed before may go on without a new claim: while nobody has fenced it, it still holds the id.
    """

    def __init__(
        self,
        client: SyncClient,
        transactional_id: str,
        timeout_ms: int,
        producer: Producer | None = None,
    ) -> None:
        self._client = client
        self._id = transactional_id
        self.producer = producer or Producer(
            client,
            self._claim(timeout_ms),
            transactional_id=transactional_id,
            stall_seconds=timeout_ms / 1000,
        )
        self._partitions: set[TopicPartition] = set()
        self._touched = False
        self._ended = False

    def _claim(self, timeout_ms: int) -> Identity:
        """Our own epoch. What an earlier holder left open is aborted by the coordinator first, which may take a moment."""

        def ask() -> Identity:
            request = InitProducerIdRequest(self._id, timeout_ms)
            answer = self._client.ask_coordinator(TRANSACTION, self._id, ApiKey.INIT_PRODUCER_ID, request)
            if answer.error_code:
                raise HeadraceError(error_of(answer.error_code), f'transactional id "{self._id}"')
            return Identity(answer.producer_id, answer.producer_epoch)

        return self._client.patiently(ask, timeout_ms / 1000)

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Before the first record goes to them."""
        new = set(partitions) - self._partitions
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for tp in sorted(new):
            topics.setdefault(tp.topic, []).append(tp.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self.producer.identity.producer_id,
            v3_and_below_producer_epoch=self.producer.identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(*row) for row in topics.items()],
        )

        def ask() -> None:
            answer = self._client.ask_coordinator(
                TRANSACTION, self._id, ApiKey.ADD_PARTITIONS_TO_TXN, request
            )
            for topic in answer.results_by_topic_v3_and_below:
                for row in topic.results_by_partition:
                    check(row.partition_error_code, f"transaction on {topic.name}-{row.partition_index}")

        self._client.patiently(ask)
        self._partitions |= new
        self._touched = True

    def commit(self) -> None:
        self.producer.flush()
        self._end(committed=True)

    def _end(self, *, committed: bool) -> None:
        self._ended = True
        if not self._touched:
            return

        def ask() -> None:
            request = EndTxnRequest(self._id, *self.producer.identity, committed)
            answer = self._client.ask_coordinator(TRANSACTION, self._id, ApiKey.END_TXN, request)
            check(answer.error_code, f'end of the transaction "{self._id}"')

        self._client.patiently(ask)

    def __enter__(self) -> SinkTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended:
            return
        self.producer.abandon()
        try:
            self._end(committed=False)
        except HeadraceError:
            # It times out on the broker, or the next claim of the id aborts it. The first error is the one to show.
            pass
