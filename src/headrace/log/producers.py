"""Machine: what each idempotent producer wrote last to this partition, and which transactions are open (R38-R40).

`check` decides and changes nothing; `record` and `complete` apply what went into the log, on the leader, on followers
(R39: they do not check) and at replay. So the table is a pure function of the log, apart from the age that expiry uses.

Invariant: `_open` is ordered by first offset, so that its first entry is the earliest open transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.log.results import ACCEPT, UNTOLD, Accept, Duplicate
from headrace.records.batch import MAX_SEQUENCE, NO_PRODUCER_EPOCH, BatchHeader

REMEMBERED_BATCHES = 5
"""R38: what a producer may have in flight, and so what it may send again."""

NO_OFFSET = -1


class ProducedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """Mutable: one per producer id, changed on every batch it writes."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_seen_ms", "transaction_start")

    def __init__(self, epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.epoch = epoch
        self.batches: deque[ProducedBatch] = deque(maxlen=REMEMBERED_BATCHES)
        """Of the current epoch only."""
        self.coordinator_epoch = -1
        self.transaction_start = NO_OFFSET
        self.last_seen_ms = 0

    @property
    def last_offset(self) -> int:
        """Of its last data batch in the current epoch; -1 when only markers were seen."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


class Completed(NamedTuple):
    """A transaction whose marker is in the log but perhaps not replicated yet."""

    first_offset: int
    marker_offset: int


class ProducerTable:
    __slots__ = ("_completed", "_open", "_producers")

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}
        """Producer id -> first offset of its open transaction."""
        self._completed: deque[Completed] = deque()

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self._producers.items())

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    @property
    def first_open_offset(self) -> int | None:
        for offset in self._open.values():
            return offset
        return None

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """In this epoch: the next transaction of a client that bumps epochs (R46) may arrive before the marker of the
        one before it, and must not slip into that one."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.transaction_start >= 0 and producer.epoch == epoch

    def check(self, header: BatchHeader) -> Accept | Duplicate | Rejected:
        """R38, R39 for a batch that a client sent; in the order of kafka.md 5.3."""
        producer = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if producer is None:
            # Never seen, expired (R40), or the topic was made again: any sequence may be the next one.
            return UNTOLD if header.base_sequence > 0 and header.producer_id >= 0 else ACCEPT
        epoch, first = header.producer_epoch, header.base_sequence
        if epoch == producer.epoch:
            for batch in producer.batches:
                if batch.first_sequence == first and batch.last_sequence == header.last_sequence:
                    return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp)
        if epoch < producer.epoch:
            return Rejected(
                ErrorKind.INVALID_PRODUCER_EPOCH, f"epoch {epoch} was fenced by epoch {producer.epoch}"
            )
        expected = 0
        if epoch == producer.epoch and producer.batches:
            expected = next_sequence(producer.batches[-1].last_sequence)
        if first != expected:
            return Rejected(
                ErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {first} where {expected} comes next"
            )
        if producer.transaction_start >= 0 and not header.is_transactional:
            return Rejected(ErrorKind.INVALID_TXN_STATE, "a plain batch inside an open transaction")
        return ACCEPT

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> Accept | Rejected:
        """May this end-of-transaction marker be written? (R43, kafka.md 7 WriteTxnMarkers)"""
        producer = self._producers.get(producer_id)
        if producer is None:
            return ACCEPT
        if epoch < producer.epoch:
            return Rejected(
                ErrorKind.INVALID_PRODUCER_EPOCH, f"epoch {epoch} was fenced by epoch {producer.epoch}"
            )
        if coordinator_epoch < producer.coordinator_epoch:
            return Rejected(
                ErrorKind.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} is older than {producer.coordinator_epoch}",
            )
        return ACCEPT

    def record(self, header: BatchHeader, base_offset: int, timestamp: int, wall_ms: int) -> None:
        """A data batch of a producer is in the log at `base_offset`."""
        producer_id = header.producer_id
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = ProducerEntry(header.producer_epoch)
        elif header.producer_epoch != producer.epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.last_seen_ms = wall_ms
        producer.batches.append(
            ProducedBatch(
                header.base_sequence,
                header.last_sequence,
                base_offset,
                base_offset + header.last_offset_delta,
                timestamp,
            )
        )
        if producer.transaction_start < 0 and header.is_transactional:
            producer.transaction_start = base_offset
            self._open[producer_id] = base_offset

    def complete(
        self, producer_id: int, epoch: int, coordinator_epoch: int, marker_offset: int, wall_ms: int
    ) -> int | None:
        """A marker is in the log. Returns the first offset of the transaction it ended, None when it had no data."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = ProducerEntry(epoch)
        if epoch > producer.epoch:
            producer.epoch = epoch
            producer.batches.clear()
        producer.coordinator_epoch = max(producer.coordinator_epoch, coordinator_epoch)
        producer.last_seen_ms = wall_ms
        producer.transaction_start = NO_OFFSET
        first_offset = self._open.pop(producer_id, None)
        if first_offset is not None:
            self._completed.append(Completed(first_offset, marker_offset))
        return first_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """R48: below it every transaction is decided, and the decision is replicated."""
        stable = high_watermark
        for offset in self._open.values():
            stable = min(stable, offset)
            break
        completed = self._completed
        while completed and completed[0].marker_offset < high_watermark:
            completed.popleft()
        for transaction in completed:
            stable = min(stable, transaction.first_offset)
        return stable

    def expire(self, wall_ms: int, expiration_ms: int) -> int:
        """R40: forget producers by age, never one with an open transaction."""
        oldest = wall_ms - expiration_ms
        gone = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.last_seen_ms < oldest and producer.transaction_start < 0
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def insert(self, producer_id: int, producer: ProducerEntry) -> None:
        """From a snapshot. `opened` must follow once all are in."""
        self._producers[producer_id] = producer

    def opened(self) -> None:
        """Put the open transactions of inserted producers into order."""
        pairs = [
            (producer.transaction_start, producer_id)
            for producer_id, producer in self._producers.items()
            if producer.transaction_start >= 0
        ]
        self._open = {producer_id: offset for offset, producer_id in sorted(pairs)}

    def take(self, other: ProducerTable) -> None:
        """Become `other`, in place: whoever holds this table goes on holding the right one."""
        self._producers, self._open, self._completed = other._producers, other._open, other._completed

    def clear(self) -> None:
        self._producers.clear()
        self._open.clear()
        self._completed.clear()


def next_sequence(last_sequence: int) -> int:
    """R39: 2^31-1 is followed by 0."""
    return 0 if last_sequence == MAX_SEQUENCE else last_sequence + 1
