"""Machine: the transactional ids that live in one partition of `__transaction_state`.

`decide` looks the verb up and changes nothing; `apply` is the only mutator. The driver lets answers and markers go only
when every fact before them is committed, so a decision is never seen before it is durable (R42).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.core.ids import TopicPartition
from headrace.core.plan import AnyCommand, JournalRecord, Plan, WallClock, WallClockSet
from headrace.transactions import add, describe, end, expire, init, journal
from headrace.transactions.commands import (
    AddOffsets,
    AddPartitions,
    DescribeTransactions,
    EndTxn,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
    TransactionPlan,
    VerifyPartitions,
)
from headrace.transactions.config import TransactionConfig
from headrace.transactions.facts import Forgotten, Loaded, Moved
from headrace.transactions.state import PREPARED
from headrace.transactions.table import TransactionTable


class TransactionShard:
    """`coordinator_epoch` is the leader epoch of the partition (R43): a shard lives as long as that leadership.

    `connection_floor` is the highest connection id this broker has given out when the shard is made (R47).
    """

    __slots__ = ("table",)

    def __init__(
        self,
        config: TransactionConfig | None = None,
        *,
        coordinator_epoch: int,
        connection_floor: int = -1,
        wall_minus_now_ms: int = 0,
    ) -> None:
        settings = config or TransactionConfig()
        self.table = TransactionTable(settings, coordinator_epoch, connection_floor, wall_minus_now_ms)

    def decide(self, command: AnyCommand, now_ms: int) -> TransactionPlan:
        return _VERBS[type(command)](self.table, command, now_ms)

    def apply(self, fact: Any, now_ms: int) -> None:
        self.table.apply(fact, now_ms)

    def encode(self, fact: Moved | Forgotten) -> Sequence[JournalRecord]:
        if isinstance(fact, Forgotten):
            return (journal.tombstone(fact.transactional_id),)
        return (journal.transaction_record(fact.transaction),)

    def replay(self, record: JournalRecord, now_ms: int) -> None:
        decoded = journal.decode(record)
        if decoded is None:
            return
        transactional_id, transaction = decoded
        self.apply(Forgotten(transactional_id) if transaction is None else Loaded(transaction), now_ms)

    def unmarked(self, transactional_id: str, marker_round: int) -> frozenset[TopicPartition]:
        """Which partitions still wait for the markers of this round; none when the round is over."""
        entry = self.table.entries.get(transactional_id)
        if entry is None or entry.transaction.state not in PREPARED or entry.marker_round != marker_round:
            return frozenset()
        return frozenset(entry.unmarked)

    def loaded(self, now_ms: int) -> TransactionPlan:
        return expire.resume(self.table)

    def next_deadline(self) -> int | None:
        return self.table.next_deadline()

    def expire(self, now_ms: int) -> TransactionPlan:
        return expire.expire(self.table, now_ms)

    def invariants(self) -> None:
        """Holds whenever all facts of a plan are applied; tests and simulation call it after each."""
        self.table.invariants()


def _wall_clock(table: TransactionTable, command: WallClock, now_ms: int) -> TransactionPlan:
    return Plan((WallClockSet(command.wall_ms - now_ms),), command.answer(None))


_VERBS: dict[type, Callable[[TransactionTable, Any, int], TransactionPlan]] = {
    InitProducerId: init.init,
    AddPartitions: add.add_partitions,
    AddOffsets: add.add_offsets,
    VerifyPartitions: add.verify_partitions,
    EndTxn: end.end,
    MarkersWritten: end.markers_written,
    DescribeTransactions: describe.describe,
    ListTransactions: describe.list_transactions,
    WallClock: _wall_clock,
}
