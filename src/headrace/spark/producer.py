"""Driver: batches to brokers, several on the way at once, each stored exactly once: an idempotent producer (KIP-98).

A batch carries its producer, epoch and sequence, so that sending it again after a broken connection or a change of leader
is harmless: the broker knows it. Order within a partition is kept because batches are sent again in their order.
"""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import ZERO_UUID, TopicPartition
from headrace.core.ports import Buffer
from headrace.records.batch import MAX_SEQUENCE
from headrace.spark.connection import BlockingConnection, ConnectionLost
from headrace.spark.sync_client import PRODUCES, SyncClient, error_of, pause
from headrace.wire.api import ApiKey
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)

_ALL_REPLICAS = -1
_BATCHES_ON_THE_WAY = 5
"""For each partition: what a broker remembers of a producer (KIP-98)."""
_BYTES_ON_THE_WAY = 16 << 20
_AGAIN = {
    ErrorKind.NOT_LEADER_OR_FOLLOWER,
    ErrorKind.LEADER_NOT_AVAILABLE,
    ErrorKind.NETWORK_EXCEPTION,
    ErrorKind.REQUEST_TIMED_OUT,
    ErrorKind.NOT_ENOUGH_REPLICAS,
    ErrorKind.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorKind.KAFKA_STORAGE_ERROR,
    ErrorKind.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorKind.CONCURRENT_TRANSACTIONS,
}


class Identity(NamedTuple):
    producer_id: int
    epoch: int


class Waiting(NamedTuple):
    tp: TopicPartition
    batch: Buffer


class Producer:
    def __init__(
        self,
        client: SyncClient,
        identity: Identity,
        *,
        transactional_id: str | None = None,
        stall_seconds: float = 60.0,
    ) -> None:
        self._client = client
        self.identity = identity
        self._transactional_id = transactional_id
        self._stall_seconds = stall_seconds
        self._sequences: dict[TopicPartition, int] = {}
        self._unanswered: dict[TopicPartition, deque[Buffer]] = {}
        self._asked: dict[BlockingConnection, deque[Waiting]] = {}
        self._bytes = 0
        self._moving = time.monotonic()

    def next_sequence(self, tp: TopicPartition, records: int) -> int:
        """The sequence of the next batch of this partition, which has so many records."""
        sequence = self._sequences.get(tp, 0)
        self._sequences[tp] = (sequence + records) & MAX_SEQUENCE
        return sequence

    def send(self, tp: TopicPartition, batch: Buffer) -> None:
        """Hand over a batch, stamped with our identity. Waits when too much is on the way; errors of earlier ones rise here."""
        queue = self._unanswered.setdefault(tp, deque())
        while len(queue) >= _BATCHES_ON_THE_WAY or (queue and self._bytes > _BYTES_ON_THE_WAY):
            self._receive_one(self._oldest_of(tp))
        queue.append(batch)
        self._bytes += len(batch)
        try:
            self._transmit(tp, batch)
        except HeadraceError as problem:
            self._start_over(problem)

    def flush(self) -> None:
        """Everything handed over is stored when this returns."""
        while any(self._unanswered.values()):
            asked = next((connection for connection, queue in self._asked.items() if queue), None)
            assert asked is not None, "an unanswered batch is always on the way"
            self._receive_one(asked)

    def _oldest_of(self, tp: TopicPartition) -> BlockingConnection:
        return next(
            connection
            for connection, queue in self._asked.items()
            if any(waiting.tp == tp for waiting in queue)
        )

    def _transmit(self, tp: TopicPartition, batch: Buffer) -> None:
        connection = self._client.leader(tp, PRODUCES)
        version = connection.version(ApiKey.PRODUCE)
        request = ProduceRequest(
            self._transactional_id,
            _ALL_REPLICAS,
            int(self._client.access.request_seconds * 1000),
            [ProduceTopic(tp.topic, ZERO_UUID, [ProducePartition(tp.partition, batch)])],
        )
        connection.send(ApiKey.PRODUCE, version, encode_produce_request(request, version))
        self._asked.setdefault(connection, deque()).append(Waiting(tp, batch))

    def _receive_one(self, connection: BlockingConnection) -> None:
        tp, batch = self._asked[connection].popleft()
        try:
            frame, position = connection.receive(reuse=False)
            answer = decode_produce_response(frame, position, connection.version(ApiKey.PRODUCE))
            row = answer.topics[0].partitions[0]
        except ConnectionLost as problem:
            self._start_over(problem)
            return
        if row.error_code in (ErrorKind.NONE, ErrorKind.DUPLICATE_SEQUENCE_NUMBER):
            self._unanswered[tp].popleft()
            self._bytes -= len(batch)
            self._moving = time.monotonic()
            return
        kind = error_of(row.error_code)
        detail = row.error_message or kind.name.lower().replace("_", " ")
        if kind is ErrorKind.MESSAGE_TOO_LARGE:
            detail = f"a batch of {len(batch)} bytes is more than the topic takes (max.message.bytes)"
        self._start_over(HeadraceError(kind, f"{tp}: {detail}"))

    def _start_over(self, problem: HeadraceError) -> None:
        """Send everything that is not known to be stored once more, in order; or give up."""
        while True:
            if problem.kind not in _AGAIN or time.monotonic() - self._moving > self._stall_seconds:
                self.abandon()
                raise problem
            self.abandon()
            self._client.forget_leaders()
            pause()
            try:
                for tp, queue in self._unanswered.items():
                    for batch in queue:
                        self._transmit(tp, batch)
                return
            except HeadraceError as again:
                problem = again

    def abandon(self) -> None:
        """Close the connections that still owe an answer."""
        for connection, queue in self._asked.items():
            if queue:
                self._client.drop(connection)
        self._asked.clear()


def idempotent_producer(client: SyncClient) -> Producer:
    """A producer with an identity of its own: at-least-once when its task is tried again, and never a broken order."""

    def ask() -> Identity:
        answer = client.call_any(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(None, 60_000))
        if answer.error_code:
            raise HeadraceError(error_of(answer.error_code), "no producer id")
        return Identity(answer.producer_id, answer.producer_epoch)

    return Producer(client, client.patiently(ask))
