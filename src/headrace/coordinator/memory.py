"""Adapter: the coordinator in this process's memory, for tests, `--ephemeral` servers and simulation.

Several faces may share one store, as several brokers share one etcd. Leases run on the clock port: a face expires
what is due before each call, and a watcher wakes itself at the next expiry. When a test moves the clock by hand,
`tick` does the same at once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from headrace.coordinator.port import (
    Compare,
    CoordinatorUnavailable,
    KeyLease,
    KeyValue,
    Operation,
    Resync,
    Snapshot,
    TxnResult,
    WatchUpdate,
)
from headrace.coordinator.signal import Signal
from headrace.coordinator.store import RevisionedStore
from headrace.core.ports import Clock


class MemoryCoordinator:
    def __init__(self, clock: Clock, store: RevisionedStore | None = None) -> None:
        self._clock = clock
        self.store = RevisionedStore() if store is None else store
        self._changed = Signal()
        self._closed = False
        self._stop_listening = self.store.on_change(self._changed.fire)

    def tick(self) -> None:
        """Expire the leases that are due."""
        self.store.expire(self._clock.now_ms())

    async def get(self, key: str) -> KeyValue | None:
        self._enter()
        return self.store.get(key)

    async def read(self, prefix: str) -> Snapshot:
        self._enter()
        return self.store.read(prefix)

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        self._enter()
        return self.store.txn(compares, operations)

    async def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchUpdate, None]:
        position = from_revision
        while not self._closed:
            ticket = self._changed.ticket()
            self.tick()
            went_back = position > self.store.revision + 1
            batch = self.store.since(prefix, position) if position and not went_back else None
            if batch is None:
                snapshot = self.store.read(prefix)
                position = snapshot.revision + 1
                yield Resync(snapshot, restored=went_back)
                continue
            position = max(position, batch.revision + 1)
            if batch.events:
                yield batch
                continue
            await self._changed.wait(ticket, self._until_next_expiry_s())

    async def grant(self, ttl_ms: int) -> KeyLease:
        self._enter()
        lease = self.store.grant(ttl_ms, self._clock.now_ms())
        self._changed.fire()  # watchers must now wake for an earlier expiry
        return lease

    async def keep_alive(self, lease_id: int) -> int:
        self._enter()
        return self.store.keep_alive(lease_id, self._clock.now_ms())

    async def revoke(self, lease_id: int) -> None:
        self._enter()
        self.store.revoke(lease_id)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._stop_listening()
            self._changed.fire()

    def _enter(self) -> None:
        if self._closed:
            raise CoordinatorUnavailable("the coordinator is closed")
        self.tick()

    def _until_next_expiry_s(self) -> float | None:
        expiry = self.store.next_expiry_ms()
        # At least a millisecond: a clock that does not follow the loop's must not make us spin.
        return None if expiry is None else max(1, expiry - self._clock.now_ms()) / 1000
