"""Driver: definitions, leases and runs of pipelines in a compacted topic of the cluster, through the Kafka door alone.

Whoever changes something claims a transactional id first (one for each pipeline and purpose), then reads everything, then writes in a
transaction. The claim fences whoever held the id before, and the coordinator has ended what that one had under way: so nobody writes
on top of something that he has not read, and a holder that was given up can't write at all. That is a compare-and-swap, on any Kafka.

Reading does not stop at the last stable offset: the open transaction of somebody who died would hold everybody up until it times out.
It reads all and follows the markers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.pipelines import DEFINITIONS, Hold, Run, Shelf, Submitted
from headrace.records.build import Record, build_batch
from headrace.records.read import read_control, read_records
from headrace.spark.fetching import fetch_range
from headrace.spark.plan import OffsetRange
from headrace.spark.producer import Producer
from headrace.spark.sync_client import EARLIEST, LATEST, READ_UNCOMMITTED, SyncClient
from headrace.spark.transactions import SinkTransaction

_TP = TopicPartition(DEFINITIONS, 0)
_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20), "min.cleanable.dirty.ratio": "0.3"}
_TIMEOUT_MS = 10_000
_MAX_BATCH = 16 << 20

FENCED = {
    ErrorKind.INVALID_PRODUCER_EPOCH,
    ErrorKind.PRODUCER_FENCED,
    ErrorKind.INVALID_PRODUCER_ID_MAPPING,
    ErrorKind.INVALID_TXN_STATE,
}
"""Somebody has claimed the id since."""

Rows = Sequence[tuple[str, bytes | None]]
"""Keys and what they are from now on; None takes one away."""


class Conflict(Exception):
    """What was believed is not so any more; nothing was written."""


class Store:
    def __init__(self, client: SyncClient) -> None:
        self._client = client
        self._shelf = Shelf()
        self._undecided: dict[int, list[Record]] = {}
        """Producer id -> what it wrote in a transaction that has not ended."""
        self._position = -1

    # -- reading -------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Learn what is new."""
        if not self._exists():
            self._forget()
            return
        end = self._client.list_offsets({_TP: LATEST}, READ_UNCOMMITTED)[_TP]
        if self._position < 0 or end < self._position:
            self._forget()
            self._position = self._client.list_offsets({_TP: EARLIEST})[_TP]
        if end <= self._position:
            return
        pieces = fetch_range(
            self._client, OffsetRange(*_TP, self._position, end), isolation=READ_UNCOMMITTED,
            fail_on_data_loss=False, max_bytes=4 << 20, markers=True,
        )  # fmt: skip
        for piece in pieces:
            for position, header in piece.batches:
                if header.is_control:
                    marker = read_control(piece.buffer, position)
                    written = self._undecided.pop(header.producer_id, []) if marker is not None else []
                    if marker is not None and marker.commit:
                        self._learn(written)
                    continue
                records = [
                    Record(record.key, None if record.value is None else bytes(record.value))
                    for record in read_records(piece.buffer, position, max_bytes=_MAX_BATCH)
                ]
                if header.is_transactional:
                    self._undecided.setdefault(header.producer_id, []).extend(records)
                else:
                    self._learn(records)
        self._position = end

    def _exists(self) -> bool:
        if not self._client.knows(DEFINITIONS):
            return DEFINITIONS in self._client.topics([DEFINITIONS])
        return True

    def _forget(self) -> None:
        self._shelf.forget()
        self._undecided.clear()
        self._position = -1

    def _learn(self, records: Sequence[Record]) -> None:
        for record in records:
            self._shelf.learn(record.key, record.value)

    def names(self) -> list[str]:
        return self._shelf.names()

    def definition(self, name: str) -> Submitted | None:
        return self._shelf.definition(name)

    def hold(self, name: str) -> Hold | None:
        return self._shelf.hold(name)

    def run(self, name: str, number: int) -> Run | None:
        return self._shelf.run(name, number)

    def runs(self, name: str) -> list[Run]:
        """The newest first."""
        return self._shelf.runs(name)

    def versions(self, name: str) -> list[Submitted]:
        """The newest first."""
        return self._shelf.versions(name)

    def keys_of(self, name: str) -> list[str]:
        return self._shelf.keys_of(name)

    # -- writing -------------------------------------------------------------------------------------------------

    def change(self, transactional_id: str, decide: Callable[[], Rows]) -> Producer:
        """Claim, read, then write what `decide` says of what was read; it may raise Conflict. The producer is good for `again`."""
        self._ensure()
        with SinkTransaction(self._client, transactional_id, _TIMEOUT_MS) as transaction:
            self.follow()
            self._put(transaction, decide())
            return transaction.producer

    def again(self, transactional_id: str, producer: Producer, rows: Rows) -> None:
        """One more change by whoever made the last: nobody else can have made one, or this is refused (`FENCED`)."""
        with SinkTransaction(self._client, transactional_id, _TIMEOUT_MS, producer) as transaction:
            self._put(transaction, rows)

    def _put(self, transaction: SinkTransaction, rows: Rows) -> None:
        if not rows:
            return
        transaction.add_partitions([_TP])
        producer = transaction.producer
        batch = build_batch(
            [Record(key.encode(), value) for key, value in rows],
            wall_ms=int(time.time() * 1000),
            producer_id=producer.identity.producer_id,
            producer_epoch=producer.identity.epoch,
            base_sequence=producer.next_sequence(_TP, len(rows)),
            transactional=True,
        )
        producer.send(_TP, batch)
        transaction.commit()

    def _ensure(self) -> None:
        if not self._exists():
            self._client.create_topic(DEFINITIONS, 1, _CONFIGS)
            self._client.topic(DEFINITIONS)


def is_fenced(problem: HeadraceError) -> bool:
    return problem.kind in FENCED
