"""Machine: all that follows from the batches of a log: epochs, producers, aborted transactions.

Invariant: after absorbing every batch in order, on a leader, a follower or at replay, the state is the same (R40).
"""

from __future__ import annotations

from headrace.core.ports import Buffer
from headrace.log.aborted import AbortedIndex, AbortedTxn
from headrace.log.epochs import LeaderEpochs
from headrace.log.producers import ProducerTable
from headrace.records.batch import BatchHeader, CorruptBatch
from headrace.records.read import read_control


class DerivedState:
    __slots__ = ("aborted", "epochs", "producers")

    def __init__(self) -> None:
        self.epochs = LeaderEpochs()
        self.producers = ProducerTable()
        self.aborted = AbortedIndex()

    def absorb(
        self,
        header: BatchHeader,
        data: Buffer,
        at: int,
        base_offset: int,
        wall_ms: int,
        *,
        known_aborted: bool = False,
    ) -> None:
        """A batch with a producer id is in the log. `known_aborted`: replay over ground the index already covers."""
        if not header.is_control:
            self.producers.record(header, base_offset, header.max_timestamp, wall_ms)
            return
        try:
            marker = read_control(data, at)
        except CorruptBatch:
            return  # the CRC held, so this is a kind of control batch that is not ours to understand
        if marker is None:
            return
        producer_id = header.producer_id
        first_offset = self.producers.complete(
            producer_id, header.producer_epoch, marker.coordinator_epoch, base_offset, wall_ms
        )
        if not marker.commit and first_offset is not None and not known_aborted:
            still_open = self.producers.first_open_offset
            stable = base_offset + 1 if still_open is None else still_open
            self.aborted.add(AbortedTxn(producer_id, first_offset, base_offset, stable))
