"""Adapter: a coordinator that does everything the port allows and no caller hopes for; for simulation.

It wraps one face of a shared in-memory store. All its choices come from the dice it is given, so a seed repeats a run.
Within the contract: transactions that time out and happened, did not happen, or happen later, after the caller has looked
(R5); watches that lag, repeat, look back to older states, and drop events behind a Resync (R3); refusal and silence (R36).
Reads stay linearizable, because every decision rests on that (R2).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from headrace.coordinator.memory import MemoryCoordinator
from headrace.coordinator.port import (
    Compare,
    CoordinatorUnavailable,
    KeyLease,
    KeyValue,
    LeaseNotFound,
    Operation,
    OutcomeUnknown,
    Resync,
    Snapshot,
    TxnResult,
    WatchBatch,
    WatchUpdate,
)
from headrace.coordinator.signal import Signal
from headrace.testing.dice import Dice

_REMEMBERED_BATCHES = 64


@dataclass(frozen=True, slots=True)
class Odds:
    """Probabilities per call or per watch update, and upper bounds of drawn delays."""

    unavailable: float = 0.02
    unknown_and_lost: float = 0.02
    unknown_and_applied: float = 0.02
    unknown_and_late: float = 0.02
    call_delay_ms: float = 5.0
    late_by_ms: float = 3_000.0
    watch_delay_ms: float = 50.0
    watch_repeat: float = 0.05
    watch_replay: float = 0.05
    watch_resync: float = 0.02


class HostileCoordinator:
    """`reachable = False` cuts this broker off: calls fail, watches are silent; True lets them catch up."""

    def __init__(self, inner: MemoryCoordinator, dice: Dice, odds: Odds | None = None) -> None:
        self._inner = inner
        self._dice = dice
        self.odds = odds or Odds()
        self._reachable = True
        self._reconnected = Signal()

    @property
    def reachable(self) -> bool:
        return self._reachable

    @reachable.setter
    def reachable(self, value: bool) -> None:
        self._reachable = value
        self._reconnected.fire()

    async def get(self, key: str) -> KeyValue | None:
        await self._travel()
        return await self._inner.get(key)

    async def read(self, prefix: str) -> Snapshot:
        await self._travel()
        return await self._inner.read(prefix)

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        await self._travel()
        if self._dice.chance(self.odds.unknown_and_lost):
            raise OutcomeUnknown("timed out, and never arrived")
        if self._dice.chance(self.odds.unknown_and_applied):
            await self._inner.txn(compares, operations)
            raise OutcomeUnknown("timed out, though it was applied")
        if self._dice.chance(self.odds.unknown_and_late):
            delay_s = self._dice.uniform(0, self.odds.late_by_ms) / 1000
            # In nobody's context: a request on its way arrives even when its sender is dead by then.
            asyncio.get_running_loop().call_later(
                delay_s, self._land, tuple(compares), tuple(operations), context=contextvars.Context()
            )
            raise OutcomeUnknown("timed out, and is still on its way")
        return await self._inner.txn(compares, operations)

    async def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchUpdate, None]:
        past: deque[WatchBatch] = deque(maxlen=_REMEMBERED_BATCHES)
        updates = self._inner.watch(prefix, from_revision)
        try:
            async for update in updates:
                await asyncio.sleep(self._dice.uniform(0, self.odds.watch_delay_ms) / 1000)
                while not self._reachable:
                    await self._reconnected.wait(self._reconnected.ticket())
                if self._dice.chance(self.odds.watch_resync):
                    # What was to be delivered is lost to compaction; what follows may repeat what this snapshot holds.
                    yield Resync(await self._inner.read(prefix))
                    continue
                yield update
                if self._dice.chance(self.odds.watch_repeat):
                    yield update
                if past and self._dice.chance(self.odds.watch_replay):
                    yield self._dice.pick(past)
                if isinstance(update, WatchBatch):
                    past.append(update)
        finally:
            await updates.aclose()

    async def grant(self, ttl_ms: int) -> KeyLease:
        await self._travel()
        return await self._inner.grant(ttl_ms)

    async def keep_alive(self, lease_id: int) -> int:
        await self._travel()
        return await self._inner.keep_alive(lease_id)

    async def revoke(self, lease_id: int) -> None:
        await self._travel()
        await self._inner.revoke(lease_id)

    async def close(self) -> None:
        await self._inner.close()
        self.reachable = True

    async def _travel(self) -> None:
        await asyncio.sleep(self._dice.uniform(0, self.odds.call_delay_ms) / 1000)
        if not self._reachable or self._dice.chance(self.odds.unavailable):
            raise CoordinatorUnavailable("the coordinator cannot be reached")

    def _land(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> None:
        try:
            self._inner.store.txn(compares, operations)
        except LeaseNotFound:
            pass
