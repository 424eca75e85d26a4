"""Machine: all transactional ids of one shard. `apply` is the only thing that changes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.core.deadlines import Deadlines
from headrace.core.ids import TopicPartition
from headrace.core.plan import WallClockSet
from headrace.transactions.config import TransactionConfig
from headrace.transactions.facts import (
    Fencing,
    Forgotten,
    Loaded,
    MarkersAcked,
    Moved,
    SpokenBy,
    Swept,
)
from headrace.transactions.state import (
    IDLE,
    LAST_EPOCH,
    PREPARED,
    InvariantBreach,
    Transaction,
    TransactionState,
    check_change,
)


class TransactionEntry:
    """A transactional id: its journaled transaction, and what only this process knows of it."""

    __slots__ = ("idle_since_ms", "marker_round", "speaker", "transaction", "unmarked")

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.unmarked: frozenset[TopicPartition] = frozenset()
        """While Prepare*: the partitions that still need their marker."""
        self.marker_round = 0
        self.speaker = -1
        """R47: the newest connection that spoke for this producer id and epoch."""
        self.idle_since_ms = 0


class TransactionTable:
    __slots__ = (
        "config", "connection_floor", "coordinator_epoch", "deadlines", "entries", "sweep_at_ms", "wall_minus_now_ms",
    )  # fmt: skip

    def __init__(
        self, config: TransactionConfig, coordinator_epoch: int, connection_floor: int, wall_minus_now_ms: int
    ) -> None:
        self.config = config
        self.coordinator_epoch = coordinator_epoch
        self.connection_floor = connection_floor
        self.wall_minus_now_ms = wall_minus_now_ms
        self.entries: dict[str, TransactionEntry] = {}
        self.deadlines: Deadlines[str] = Deadlines()
        self.sweep_at_ms: int | None = None

    def wall_ms(self, now_ms: int) -> int:
        return now_ms + self.wall_minus_now_ms

    def next_deadline(self) -> int | None:
        timeout_ms, sweep_ms = self.deadlines.next_ms(), self.sweep_at_ms
        if timeout_ms is None or sweep_ms is None:
            return sweep_ms if timeout_ms is None else timeout_ms
        return min(timeout_ms, sweep_ms)

    # --- facts -----------------------------------------------------------------------------------------------

    def apply(self, fact: Any, now_ms: int) -> None:
        _APPLY[type(fact)](self, fact, now_ms)

    def _moved(self, fact: Moved | Fencing, now_ms: int) -> None:
        new = fact.transaction
        entry = self.entries.get(new.transactional_id)
        old = None if entry is None else entry.transaction
        check_change(old, new)
        if entry is None:
            entry = self.entries[new.transactional_id] = TransactionEntry(new)
        if old is not None and (old.producer_id, old.producer_epoch) != (new.producer_id, new.producer_epoch):
            entry.speaker = -1  # R47 is about one producer id and epoch
        if new.state in PREPARED and isinstance(fact, Moved):
            entry.marker_round = fact.marker_round
        self._take(entry, old, new, now_ms)

    def _loaded(self, fact: Loaded, now_ms: int) -> None:
        new = fact.transaction
        entry = self.entries[new.transactional_id] = TransactionEntry(new)
        self._take(entry, None, new, now_ms)
        entry.marker_round = now_ms
        # R47: who spoke last before the failover is not known, so connections from before it are not heard for this
        # producer and epoch.
        entry.speaker = self.connection_floor + 1
        if new.state in IDLE:
            # Idle time survives a failover; a clock that jumped back only makes it start again.
            entry.idle_since_ms = now_ms - max(0, self.wall_ms(now_ms) - new.updated_wall_ms)

    def _take(self, entry: TransactionEntry, old: Transaction | None, new: Transaction, now_ms: int) -> None:
        entry.transaction = new
        entry.unmarked = new.partitions if new.state in PREPARED else frozenset()
        entry.idle_since_ms = now_ms
        if new.state is not TransactionState.ONGOING:
            self.deadlines.cancel(new.transactional_id)
        elif old is None or old.state is not TransactionState.ONGOING:
            # On reload in full (R58): a timeout may come late but never early.
            self.deadlines.set(new.transactional_id, now_ms + new.timeout_ms)
        if self.sweep_at_ms is None:
            self.sweep_at_ms = now_ms + self.config.sweep_interval_ms

    def _forgotten(self, fact: Forgotten, now_ms: int) -> None:
        entry = self.entries.pop(fact.transactional_id, None)
        if entry is not None and entry.transaction.state not in IDLE:
            raise InvariantBreach(f"{fact.transactional_id}: {entry.transaction.state.label} -> Dead")
        if not self.entries:
            self.sweep_at_ms = None

    def _markers_acked(self, fact: MarkersAcked, now_ms: int) -> None:
        self.entries[fact.transactional_id].unmarked -= fact.partitions

    def _spoken_by(self, fact: SpokenBy, now_ms: int) -> None:
        self.entries[fact.transactional_id].speaker = fact.connection_id

    def _wall_clock_set(self, fact: WallClockSet, now_ms: int) -> None:
        self.wall_minus_now_ms = fact.wall_minus_now_ms

    def _swept(self, fact: Swept, now_ms: int) -> None:
        self.sweep_at_ms = now_ms + self.config.sweep_interval_ms if self.entries else None

    def invariants(self) -> None:
        """Holds whenever all facts of a plan are applied."""
        for transactional_id, entry in self.entries.items():
            transaction = entry.transaction
            assert transaction.transactional_id == transactional_id
            assert transaction.state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
            assert entry.unmarked <= transaction.partitions
            assert bool(entry.unmarked) == (transaction.state in PREPARED), (
                "a decided transaction is complete, or waits"
            )
            assert bool(transaction.partitions) == (transaction.state not in IDLE)
            assert (
                transaction.state is not TransactionState.ONGOING or transaction.producer_epoch <= LAST_EPOCH
            )


_APPLY: dict[type, Callable[[TransactionTable, Any, int], None]] = {
    Moved: TransactionTable._moved,
    Fencing: TransactionTable._moved,
    Loaded: TransactionTable._loaded,
    Forgotten: TransactionTable._forgotten,
    MarkersAcked: TransactionTable._markers_acked,
    SpokenBy: TransactionTable._spoken_by,
    Swept: TransactionTable._swept,
    WallClockSet: TransactionTable._wall_clock_set,
}
