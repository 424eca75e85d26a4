"""A driver for queue shards that fits on a page: applies plans, keeps the journal in a list, crashes on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headrace.core.plan import JournalRecord, Plan
from headrace.queues.commands import (
    Configure,
    DataAvailable,
    Handle,
    Inspect,
    LoggedMessage,
    MessageStatus,
    Open,
    ReadAhead,
    Receive,
    ReceivedRuns,
    Source,
)
from headrace.queues.config import QueueConfig
from headrace.queues.shard import QueueShard

SOURCE = Source("q", "t", 0)
EPOCH_MS = 1_700_000_000_000
"""The wall clock when the monotonic one says 0."""


class Desk:
    def __init__(self, config: QueueConfig | None = None, *, checked: bool = True) -> None:
        self.checked = checked
        self.now_ms = 0
        self.lease_epoch = 1
        self.shard = QueueShard(lease_epoch=1, wall_offset_ms=EPOCH_MS)
        self.journal: list[JournalRecord] = []
        self.effects: list[Any] = []
        self.log: dict[Source, list[LoggedMessage]] = {}
        self.skipped: dict[Source, set[int]] = {}
        self.log_start: dict[Source, int] = {}
        if config is not None:
            assert self.ask(Configure("q", config)) is None
            self.ask(Open(SOURCE, 0))

    @property
    def wall_ms(self) -> int:
        return self.now_ms + EPOCH_MS

    # --- what a driver does --------------------------------------------------------------------------------------

    def carry_out(self, plan: Plan) -> None:
        for fact in plan.facts:
            self.shard.apply(fact, self.now_ms)
            if fact.durable:
                self.journal += self.shard.encode(fact)
            if self.checked:
                self.shard.invariants()
        self.effects += plan.effects
        for effect in plan.effects:
            if isinstance(effect, ReadAhead):
                self.feed(effect.source)

    def ask(self, command: Any) -> Any:
        """Send a command and return its answer."""
        plan = self.shard.decide(replace(command, waiter=7), self.now_ms)
        self.carry_out(plan)
        assert len(plan.replies) == 1 and plan.replies[0].waiter == 7
        return plan.replies[0].value

    def tick(self, until_ms: int) -> None:
        """Let time pass to `until_ms`; whatever is due happens at its time."""
        while (at := self.shard.next_deadline()) is not None and at <= until_ms:
            self.now_ms = max(self.now_ms, at)
            self.carry_out(self.shard.expire(self.now_ms))
        self.now_ms = until_ms

    def advance(self, by_ms: int) -> None:
        self.tick(self.now_ms + by_ms)

    def feed(self, source: Source) -> None:
        """What the effect ReadAhead asks for."""
        wanted = self.shard.wanted(source)
        if wanted is not None:
            self._tell(source, wanted.first, min(wanted.end, wanted.first + wanted.limit))

    def _tell(self, source: Source, first: int, end: int) -> None:
        log = self.log.get(source, [])
        skipped = sorted(offset for offset in self.skipped.get(source, ()) if first <= offset < end)
        self.ask(
            DataAvailable(
                source, len(log), self.log_start.get(source, 0), indexed_to=end, messages=tuple(log[first:end]),
                skipped=tuple((offset, offset + 1) for offset in skipped),
            )
        )  # fmt: skip

    # --- what a test says ------------------------------------------------------------------------------------------

    def send(self, *messages: LoggedMessage, source: Source = SOURCE) -> None:
        """Offsets are filled in."""
        log = self.log.setdefault(source, [])
        for message in messages:
            log.append(message._replace(offset=len(log)))
        self.announce(source)

    def send_plain(self, count: int, source: Source = SOURCE) -> None:
        self.send(*[LoggedMessage(0)] * count, source=source)

    def announce(self, source: Source = SOURCE) -> None:
        self.ask(DataAvailable(source, len(self.log.get(source, [])), self.log_start.get(source, 0)))

    def receive(self, limit: int = 10, source: Source = SOURCE, **options: Any) -> list[Handle]:
        answer = self.ask(Receive(source, limit, **options))
        assert isinstance(answer, ReceivedRuns), answer
        return answer.handles()

    def offsets(self, limit: int = 10, **options: Any) -> list[int]:
        return [handle.offset for handle in self.receive(limit, **options)]

    def status(self, offset: int, source: Source = SOURCE) -> MessageStatus:
        status = self.ask(Inspect(source, offset))
        assert isinstance(status, MessageStatus)
        return status

    def take_effects(self, kind: type | None = None) -> list[Any]:
        taken = [effect for effect in self.effects if kind is None or isinstance(effect, kind)]
        self.effects = [
            effect for effect in self.effects if kind is not None and not isinstance(effect, kind)
        ]
        return taken

    def crash(
        self, *, compact_to: int | None = None, keep_tombstone: Callable[[int], bool] = lambda at: True
    ) -> None:
        """Another broker takes over. The journal before `compact_to` is compacted first."""
        if compact_to is not None:
            last = {record.key: at for at, record in enumerate(self.journal[:compact_to])}
            self.journal = [
                record
                for at, record in enumerate(self.journal)
                if at >= compact_to
                or (last[record.key] == at and (record.value is not None or keep_tombstone(at)))
            ]
        self.effects.clear()
        self.lease_epoch += 1
        self.shard = QueueShard(lease_epoch=self.lease_epoch, wall_offset_ms=EPOCH_MS)
        for record in self.journal:
            self.shard.replay(record, self.now_ms)
        self.carry_out(self.shard.loaded(self.now_ms))
        for source in self.shard.sources():
            self.announce(source)
        self.tick(self.now_ms)
