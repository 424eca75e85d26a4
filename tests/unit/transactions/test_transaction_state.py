"""R41: the table of legal changes, and nothing else."""

from __future__ import annotations

import pytest

from headrace.core.ids import TopicPartition
from headrace.transactions.facts import Forgotten, Loaded, Moved
from headrace.transactions.shard import TransactionShard
from headrace.transactions.state import (
    COMPLETE,
    IDLE,
    PREPARED,
    InvariantBreach,
    Transaction,
    TransactionState,
    check_change,
)

S = TransactionState
P = frozenset({TopicPartition("t", 0)})

# The rule as it is written in correctness.md.
LEGAL = {
    S.EMPTY: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.ONGOING: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.PREPARE_COMMIT: {S.ONGOING},
    S.PREPARE_ABORT: {S.ONGOING, S.PREPARE_EPOCH_FENCE},
    S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
    S.COMPLETE_ABORT: {S.PREPARE_ABORT},
    S.PREPARE_EPOCH_FENCE: {S.ONGOING},
}


def transaction(state: TransactionState, epoch: int = 3, **changes: object) -> Transaction:
    partitions = frozenset() if state in IDLE else P
    return Transaction("x", 9, epoch, state, 1000, partitions)._replace(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("new", LEGAL)
@pytest.mark.parametrize("old", [state for state in S if state is not S.DEAD])
def test_r41_every_pair_of_states(old: TransactionState, new: TransactionState) -> None:
    epoch = 4 if new is S.PREPARE_EPOCH_FENCE else 3
    if old in LEGAL[new]:
        check_change(transaction(old), transaction(new, epoch))
    else:
        with pytest.raises(InvariantBreach):
            check_change(transaction(old), transaction(new, epoch))


@pytest.mark.parametrize("state", [state for state in S if state is not S.EMPTY and state is not S.DEAD])
def test_r41_an_id_begins_empty(state: TransactionState) -> None:
    check_change(None, transaction(S.EMPTY))
    with pytest.raises(InvariantBreach):
        check_change(None, transaction(state))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            transaction(S.EMPTY),
            transaction(S.ONGOING, 4),
        ),  # an epoch changes only where it is given out or fenced
        (transaction(S.EMPTY), transaction(S.EMPTY, 5)),
        (transaction(S.EMPTY), transaction(S.EMPTY, 2)),
        (transaction(S.EMPTY), transaction(S.EMPTY, 3, producer_id=10)),
        (transaction(S.EMPTY, 32766), transaction(S.EMPTY, 32767)),
        (transaction(S.ONGOING), transaction(S.ONGOING, partitions=frozenset())),
        (transaction(S.ONGOING), transaction(S.PREPARE_COMMIT, partitions=frozenset())),
        (transaction(S.ONGOING), transaction(S.PREPARE_COMMIT, 5, last_epoch=3)),
        (transaction(S.ONGOING), transaction(S.PREPARE_COMMIT, 4)),  # bumped without telling from what
        (transaction(S.ONGOING), transaction(S.PREPARE_EPOCH_FENCE, 3)),
        (transaction(S.PREPARE_ABORT), transaction(S.COMPLETE_ABORT, 4)),
        (transaction(S.PREPARE_ABORT), transaction(S.COMPLETE_ABORT, partitions=P)),
        (transaction(S.PREPARE_COMMIT), transaction(S.COMPLETE_COMMIT, 0, producer_id=11)),
    ],
)
def test_r41_epochs_and_partitions_change_only_where_they_may(old: Transaction, new: Transaction) -> None:
    with pytest.raises(InvariantBreach):
        check_change(old, new)


def test_r41_apply_refuses_what_is_not_legal() -> None:
    shard = TransactionShard(coordinator_epoch=1)
    shard.apply(Moved(transaction(S.EMPTY)), 0)
    with pytest.raises(InvariantBreach):
        shard.apply(Moved(transaction(S.PREPARE_COMMIT)), 0)
    assert shard.table.entries["x"].transaction.state is S.EMPTY


@pytest.mark.parametrize("state", [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_r41_only_idle_ids_are_forgotten(state: TransactionState) -> None:
    shard = TransactionShard(coordinator_epoch=1)
    shard.apply(Loaded(transaction(state)), 0)
    with pytest.raises(InvariantBreach):
        shard.apply(Forgotten("x"), 0)


def test_labels_are_kafkas() -> None:
    assert [state.label for state in S] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ]  # fmt: skip
    assert not PREPARED & COMPLETE and COMPLETE < IDLE
