"""Machine: what is known of one transactional id, and the only ways it may change (R41).

    Empty ── AddPartitions ──> Ongoing ── EndTxn ──> PrepareCommit ── all markers ──> CompleteCommit
                                  │                  PrepareAbort  ── written     ──> CompleteAbort
                                  └── fenced ──> PrepareEpochFence ──> PrepareAbort

From Complete* the next transaction starts (Ongoing), or the producer starts over (Empty). Prepare* is irreversible: it
can only become complete (R49). A change that is not in the table is a bug in the coordinator, and going on would tear a
transaction, so it is raised, never logged and ignored.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from headrace.core.ids import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1

LAST_EPOCH = 32766
"""The greatest epoch a producer is given; one more is left so that even this one can be fenced."""


class InvariantBreach(AssertionError):
    """The coordinator was about to do what it never may."""


class TransactionState(IntEnum):
    """The numbers are Kafka's, and are journaled."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As Kafka's tools print it: PrepareCommit."""
        return self.name.title().replace("_", "")


PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
IDLE = COMPLETE | {TransactionState.EMPTY}

PREDECESSORS: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: IDLE,
    TransactionState.ONGOING: IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: frozenset(
        {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE}
    ),
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
    TransactionState.DEAD: IDLE,
}


class Transaction(NamedTuple):
    """Everything that is journaled of a transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: TransactionState
    timeout_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    last_epoch: int = NO_EPOCH
    """The epoch before this one, when its producer may not know yet that it has a new one: its retries are recognised by
    it. NO_EPOCH after a fence, so that nobody can pass for that producer."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The id before the epochs ran out."""
    next_producer_id: int = NO_PRODUCER_ID
    """The id the producer was told to go on with, valid once the transaction is complete."""
    epoch_bump: bool = False
    """The transaction is, or was last, ended by a client of transaction version 2 (R46)."""
    start_wall_ms: int = NO_TIME
    updated_wall_ms: int = NO_TIME

    @property
    def is_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    @property
    def commits(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def identity_after(self) -> tuple[int, int]:
        """Producer id and epoch of its client in the next transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch


def is_exhausted(epoch: int) -> bool:
    """No producer can be given the epoch after this one: it needs a new producer id."""
    return epoch >= LAST_EPOCH


def check_change(old: Transaction | None, new: Transaction) -> None:
    """R41: raises unless `new` may follow `old`."""
    if old is None:
        if new.state is not TransactionState.EMPTY:
            raise InvariantBreach(f"{new.transactional_id} begins as {new.state.label}")
        return
    if old.state not in PREDECESSORS[new.state]:
        raise InvariantBreach(f"{new.transactional_id}: {old.state.label} -> {new.state.label}")
    if not _CHECKS[new.state](old, new):
        raise InvariantBreach(f"{new.transactional_id}: {old} -> {new}")


def _check_empty(old: Transaction, new: Transaction) -> bool:
    same_or_next = new.producer_id == old.producer_id and new.producer_epoch - old.producer_epoch in (0, 1)
    new_id = new.producer_id != old.producer_id and new.producer_epoch == 0
    return (same_or_next or new_id) and not new.partitions and new.producer_epoch <= LAST_EPOCH


def _check_ongoing(old: Transaction, new: Transaction) -> bool:
    return _same_producer(old, new) and new.partitions >= old.partitions


def _check_fence(old: Transaction, new: Transaction) -> bool:
    bumped = new.producer_epoch == old.producer_epoch + 1 and new.last_epoch == NO_EPOCH
    return new.producer_id == old.producer_id and bumped and new.partitions == old.partitions


def _check_prepared(old: Transaction, new: Transaction) -> bool:
    bump = new.producer_epoch - old.producer_epoch
    told = new.last_epoch == old.producer_epoch if bump else new.last_epoch == old.last_epoch
    return new.producer_id == old.producer_id and bump in (0, 1) and told and new.partitions == old.partitions


def _check_complete(old: Transaction, new: Transaction) -> bool:
    rotated = (new.producer_id, new.producer_epoch) == (old.next_producer_id, 0)
    return (
        (rotated or _same_producer(old, new))
        and not new.partitions
        and new.next_producer_id == NO_PRODUCER_ID
    )


def _same_producer(old: Transaction, new: Transaction) -> bool:
    return (new.producer_id, new.producer_epoch) == (old.producer_id, old.producer_epoch)


_CHECKS = {
    TransactionState.EMPTY: _check_empty,
    TransactionState.ONGOING: _check_ongoing,
    TransactionState.PREPARE_EPOCH_FENCE: _check_fence,
    TransactionState.PREPARE_COMMIT: _check_prepared,
    TransactionState.PREPARE_ABORT: _check_prepared,
    TransactionState.COMPLETE_COMMIT: _check_complete,
    TransactionState.COMPLETE_ABORT: _check_complete,
}
