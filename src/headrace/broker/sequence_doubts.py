"""Machine: which refusals of idempotent producers may be spoken out (R7, R39).

"Out of order" ends a producer, so only the leader there is may say it. One that was replaced unawares misses what its
successor took; its lease does not tell, because leaderships are also moved while it lasts. So a refusal is held back, with
an error that makes the client ask again, until the coordinator has said that we led after the batch was first refused.
Invariant: whatever that producer had been told before it sent the batch is then in our log, and the refusal is true.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.records.batch import BatchHeader

MAX_BATCHES = 1_000
"""A client that is refused more often than this just asks once more."""


class SequencedBatch(NamedTuple):
    producer_id: int
    producer_epoch: int
    base_sequence: int


class SequenceDoubts:
    """Of one leadership: `forget` when the next one begins."""

    __slots__ = ("_doubted", "_sure")

    def __init__(self) -> None:
        self._doubted: dict[SequencedBatch, None] = {}
        self._sure: dict[SequencedBatch, None] = {}

    def is_sure(self, header: BatchHeader) -> bool:
        """False: the coordinator has to be asked; the batch is remembered until then."""
        batch = SequencedBatch(header.producer_id, header.producer_epoch, header.base_sequence)
        if batch in self._sure:
            return True
        if len(self._doubted) < MAX_BATCHES:
            self._doubted[batch] = None
        return False

    def until_now(self) -> tuple[SequencedBatch, ...]:
        """What a question to the coordinator that is put now will settle."""
        return tuple(self._doubted)

    def settle(self, batches: tuple[SequencedBatch, ...]) -> None:
        """We led at a moment after all of these were refused."""
        if len(self._sure) + len(batches) > MAX_BATCHES:
            self._sure.clear()
        for batch in batches:
            self._doubted.pop(batch, None)
            self._sure[batch] = None

    def forget(self) -> None:
        self._doubted.clear()
        self._sure.clear()
