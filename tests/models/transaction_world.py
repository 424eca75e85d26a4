"""A transaction shard with a driver made of lists: applies plans, keeps the journal, moves the time, checks invariants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.core.errors import ErrorKind
from headrace.core.ids import TopicPartition
from headrace.core.plan import JournalRecord, Plan
from headrace.transactions.commands import (
    AddPartitions,
    EndTxn,
    InitProducerId,
    MarkersWritten,
    ProducerIdentity,
    SendMarkers,
    VerifyPartitions,
)
from headrace.transactions.config import TransactionConfig
from headrace.transactions.shard import TransactionShard
from headrace.transactions.state import Transaction

WALL_MS = 1_700_000_000_000
P0, P1, P2 = (TopicPartition("t", index) for index in range(3))


class World:
    """One transactional id `x` unless a test says otherwise; producer ids are drawn from 1000 up."""

    def __init__(self, **settings: Any) -> None:
        self.config = TransactionConfig(**settings)
        self.now_ms = 1_000
        self.coordinator_epoch = 5
        self.shard = TransactionShard(
            self.config, coordinator_epoch=self.coordinator_epoch, wall_minus_now_ms=WALL_MS
        )
        self.journal: list[JournalRecord] = []
        self.effects: list[Any] = []
        self.last: Plan[Any] = Plan()
        self._waiter = 0
        self._drawn = 999

    def draw(self) -> int:
        self._drawn += 1
        return self._drawn

    def ask(self, make: Callable[[int], Any]) -> Any:
        """Decide, apply, journal; the answer must come at once."""
        self._waiter += 1
        plan = self.shard.decide(make(self._waiter), self.now_ms)
        self.run(plan)
        answers = [value for waiter, value in plan.replies if waiter == self._waiter]
        assert len(answers) == 1
        return answers[0]

    def run(self, plan: Plan) -> None:
        self.last = plan
        for fact in plan.facts:
            self.shard.apply(fact, self.now_ms)
            if fact.durable:
                self.journal += self.shard.encode(fact)  # type: ignore[arg-type]
        self.shard.invariants()
        self.effects += plan.effects

    def transaction(self, transactional_id: str = "x") -> Transaction:
        return self.shard.table.entries[transactional_id].transaction

    @property
    def state(self) -> str:
        return self.transaction().state.label

    # --- requests --------------------------------------------------------------------------------------------

    def init(
        self,
        transactional_id: str = "x",
        timeout_ms: int = 60_000,
        expected: tuple[int, int] = (-1, -1),
        connection: int | None = None,
    ) -> ProducerIdentity:
        answer: ProducerIdentity = self.ask(
            lambda w: InitProducerId(
                transactional_id, timeout_ms, self.draw(), *expected, connection, waiter=w
            )
        )
        return answer

    def add(
        self,
        producer: ProducerIdentity,
        *partitions: TopicPartition,
        connection: int | None = None,
        transactional_id: str = "x",
    ) -> ErrorKind:
        answer: ErrorKind = self.ask(
            lambda w: AddPartitions(
                transactional_id, *producer[1:], frozenset(partitions), connection, waiter=w
            )
        )
        return answer

    def verify(
        self, producer: ProducerIdentity, *partitions: TopicPartition
    ) -> dict[TopicPartition, ErrorKind]:
        answer: dict[TopicPartition, ErrorKind] = self.ask(
            lambda w: VerifyPartitions("x", *producer[1:], frozenset(partitions), waiter=w)
        )
        return answer

    def end(
        self,
        producer: ProducerIdentity,
        commit: bool = True,
        bump: bool = False,
        connection: int | None = None,
    ) -> ProducerIdentity:
        answer: ProducerIdentity = self.ask(
            lambda w: EndTxn("x", *producer[1:], commit, bump, self.draw(), connection, waiter=w)
        )
        return answer

    def mark(self, *partitions: TopicPartition, sent: SendMarkers | None = None) -> None:
        """Answer the newest SendMarkers, for these partitions or all of them."""
        if sent is None:
            sent = next(effect for effect in reversed(self.effects) if isinstance(effect, SendMarkers))
        done = frozenset(partitions or sent.partitions)
        command = MarkersWritten(sent.transactional_id, sent.marker_round, done)
        self.run(self.shard.decide(command, self.now_ms))

    # --- time and failure ------------------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (at_ms := self.shard.next_deadline()) is not None and at_ms <= end_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self.run(self.shard.expire(self.now_ms))
            after_ms = self.shard.next_deadline()
            assert after_ms is None or after_ms > self.now_ms, "expire left something due"
        self.now_ms = end_ms

    def restart(self, down_ms: int = 0, compacted: bool = False, connection_floor: int = -1) -> None:
        """Another broker takes over, on its own monotonic clock."""
        wall_ms = self.shard.table.wall_ms(self.now_ms) + down_ms
        self.now_ms = 77
        self.coordinator_epoch += 1
        self.shard = TransactionShard(
            self.config,
            coordinator_epoch=self.coordinator_epoch,
            connection_floor=connection_floor,
            wall_minus_now_ms=wall_ms - self.now_ms,
        )
        journal = (
            list({record.key: record for record in self.journal}.values()) if compacted else self.journal
        )
        for record in journal:
            self.shard.replay(record, self.now_ms)
        self.effects.clear()
        self.run(self.shard.loaded(self.now_ms))
