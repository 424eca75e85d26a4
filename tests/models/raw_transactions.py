"""A transactional producer made of single requests, for tests that need them one at a time, or twice, or too late.

It speaks the versions of clients that do not bump their epoch (transaction version 1) unless told otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from raw_client import RawClient

from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.records.build import Record, build_batch
from headrace.wire.api import ApiKey
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.wire.produce import ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceTopic

RETRIABLE = (
    ErrorKind.CONCURRENT_TRANSACTIONS,
    ErrorKind.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorKind.COORDINATOR_NOT_AVAILABLE,
    ErrorKind.NOT_COORDINATOR,
    ErrorKind.NOT_ENOUGH_REPLICAS,
)


def retried(ask: Callable[[], Any], code: Callable[[Any], int], seconds: float = 240.0) -> Any:
    """Ask again while the coordinator is busy with the transaction before, as clients do."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if ErrorKind(code(answer)) not in RETRIABLE or time.monotonic() > deadline:
            return answer
        time.sleep(0.02)


class RawProducer:
    def __init__(self, client: RawClient, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self.sequence = 0

    def init(self) -> ErrorKind:
        find = FindCoordinatorRequest(self.transactional_id, 1)
        retried(lambda: self.client.call(ApiKey.FIND_COORDINATOR, 2, find), lambda answer: answer.error_code)
        request = InitProducerIdRequest(self.transactional_id, self._timeout_ms)
        answer = retried(
            lambda: self.client.call(ApiKey.INIT_PRODUCER_ID, 4, request), lambda answer: answer.error_code
        )
        self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return ErrorKind(answer.error_code)

    def add(self, topic: str, partition: int = 0) -> ErrorKind:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [partition])],
        )

        def code(answer: Any) -> int:
            found: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            return found

        return ErrorKind(
            code(retried(lambda: self.client.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request), code))
        )

    def produce_request(self, topic: str, *values: bytes, partition: int = 0) -> ProduceRequest:
        batch = build_batch(
            [Record(None, value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
            wall_ms=time.time_ns() // 1_000_000,
        )
        row = ProducePartition(partition, batch)
        return ProduceRequest(self.transactional_id, -1, 10_000, [ProduceTopic(topic, ZERO_UUID, [row])])

    def produce(
        self, topic: str, *values: bytes, partition: int = 0, version: int = 9
    ) -> ProducePartitionResponse:
        request = self.produce_request(topic, *values, partition=partition)
        response = retried(
            lambda: self.client.call(ApiKey.PRODUCE, version, request),
            lambda answer: answer.topics[0].partitions[0].error_code,
        )
        row: ProducePartitionResponse = response.topics[0].partitions[0]
        if row.error_code == 0:
            self.sequence += len(values)
        return row

    def commit_offset(self, group: str, topic: str, offset: int, partition: int = 0) -> ErrorKind:
        add = AddOffsetsToTxnRequest(self.transactional_id, self.producer_id, self.epoch, group)
        added = retried(
            lambda: self.client.call(ApiKey.ADD_OFFSETS_TO_TXN, 3, add), lambda answer: answer.error_code
        )
        assert added.error_code == 0
        request = self.offset_request(group, topic, offset, partition)
        answer = retried(
            lambda: self.client.call(ApiKey.TXN_OFFSET_COMMIT, 3, request),
            lambda answer: answer.topics[0].partitions[0].error_code,
        )
        return ErrorKind(answer.topics[0].partitions[0].error_code)

    def offset_request(
        self, group: str, topic: str, offset: int, partition: int = 0
    ) -> TxnOffsetCommitRequest:
        rows = [TxnOffsetCommitRequestPartition(partition, offset, -1, "")]
        return TxnOffsetCommitRequest(
            self.transactional_id,
            group,
            self.producer_id,
            self.epoch,
            topics=[TxnOffsetCommitRequestTopic(topic, rows)],
        )

    def end(self, *, commit: bool = True, version: int = 3) -> EndTxnResponse:
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)
        answer: EndTxnResponse = retried(
            lambda: self.client.call(ApiKey.END_TXN, version, request), lambda answer: answer.error_code
        )
        if version >= 5 and answer.error_code == 0:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return answer

    def marker(self, topic: str, *, commit: bool, coordinator_epoch: int = 1_000) -> WriteTxnMarkersRequest:
        return WriteTxnMarkersRequest(
            [
                WritableTxnMarker(
                    self.producer_id,
                    self.epoch,
                    commit,
                    [WritableTxnMarkerTopic(topic, [0])],
                    coordinator_epoch,
                )
            ]
        )


def fetch_committed(client: RawClient, topic: str, offset: int = 0, partition: int = 0) -> Any:
    """One partition of a read_committed fetch."""
    wanted = FetchTopic(topic, ZERO_UUID, [FetchPartition(partition, -1, offset, -1, -1, 1 << 20)])
    request = FetchRequest(-1, -1, 0, 1, 1 << 20, 1, 0, -1, [wanted])
    return client.call(ApiKey.FETCH, 11, request).topics[0].partitions[0]
