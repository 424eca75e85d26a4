"""Machine: the coordinator's store in memory, synchronous, the time an argument. Simulation runs on it.

It is the model the other adapters are tested against: etcd's semantics of revisions, transactions, leases and
history. Invariant: `revision` grows by one for each call that changes at least one key, and by none otherwise.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.coordinator.history import EventHistory
from headrace.coordinator.port import (
    Compare,
    Delete,
    Event,
    KeyLease,
    KeyValue,
    LeaseNotFound,
    Operation,
    Put,
    Snapshot,
    TxnResult,
    WatchBatch,
    check_txn,
    prefix_end,
)

HISTORY_REVISIONS = 10_000


@dataclass(slots=True)
class _HeldLease:
    ttl_ms: int
    expires_ms: int
    keys: set[str] = field(default_factory=set)


class RevisionedStore:
    """`on_change` is called after each new revision, so that a face can wake its watchers."""

    __slots__ = ("_history", "_items", "_keys", "_leases", "_listeners", "_next_lease", "revision")

    def __init__(self, *, history_revisions: int = HISTORY_REVISIONS) -> None:
        self.revision = 1  # as etcd: an empty store is at 1
        self._items: dict[str, KeyValue] = {}
        self._keys: list[str] = []
        self._leases: dict[int, _HeldLease] = {}
        self._next_lease = 1
        self._history = EventHistory(latest=self.revision, capacity=history_revisions, floor=1)
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Returns the function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def get(self, key: str) -> KeyValue | None:
        return self._items.get(key)

    def read(self, prefix: str) -> Snapshot:
        return Snapshot(self.revision, [self._items[key] for key in self._keys_under(prefix)])

    def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        check_txn(compares, operations)
        if not all(compare.holds(self._items.get(compare.key)) for compare in compares):
            return TxnResult(False, self.revision)
        for operation in operations:
            if isinstance(operation, Put) and operation.lease and operation.lease not in self._leases:
                raise LeaseNotFound(f"lease {operation.lease} is gone; nothing was written")
        events: list[Event] = []
        for operation in operations:
            if isinstance(operation, Put):
                events.append(self._put(operation))
            elif isinstance(operation, Delete):
                events.extend(self._delete([operation.key]))
            else:
                events.extend(self._delete(self._keys_under(operation.prefix)))
        self._commit(events)
        return TxnResult(True, self.revision)

    def since(self, prefix: str, position: int) -> WatchBatch | None:
        """See EventHistory.since."""
        return self._history.since(prefix, position)

    def compact(self, revision: int) -> None:
        """Forget the history up to and including `revision`."""
        self._history.forget_below(revision + 1)

    def grant(self, ttl_ms: int, now_ms: int) -> KeyLease:
        if ttl_ms <= 0:
            raise ValueError(f"a lease of {ttl_ms} ms")
        lease = KeyLease(self._next_lease, ttl_ms)
        self._next_lease += 1
        self._leases[lease.id] = _HeldLease(ttl_ms, now_ms + ttl_ms)
        return lease

    def keep_alive(self, lease_id: int, now_ms: int) -> int:
        held = self._leases.get(lease_id)
        if held is None:
            return 0
        if held.expires_ms <= now_ms:
            self.revoke(lease_id)
            return 0
        held.expires_ms = now_ms + held.ttl_ms
        return held.ttl_ms

    def revoke(self, lease_id: int) -> None:
        held = self._leases.pop(lease_id, None)
        if held is not None:
            self._commit(self._delete(sorted(held.keys)))

    def expire(self, now_ms: int) -> None:
        """Revoke every lease whose time has come, each at its own revision, earliest first."""
        due = sorted(
            (held.expires_ms, lease) for lease, held in self._leases.items() if held.expires_ms <= now_ms
        )
        for _, lease_id in due:
            self.revoke(lease_id)

    def next_expiry_ms(self) -> int | None:
        return min((held.expires_ms for held in self._leases.values()), default=None)

    def _keys_under(self, prefix: str) -> list[str]:
        end = prefix_end(prefix)
        start = bisect_left(self._keys, prefix)
        return self._keys[start : len(self._keys) if end is None else bisect_left(self._keys, end)]

    def _put(self, put: Put) -> Event:
        held = self._items.get(put.key)
        revision = self.revision + 1
        if held is None:
            insort(self._keys, put.key)
        elif held.lease and held.lease in self._leases:
            self._leases[held.lease].keys.discard(put.key)
        if put.lease:
            self._leases[put.lease].keys.add(put.key)
        created = revision if held is None else held.create_revision
        self._items[put.key] = KeyValue(put.key, put.value, created, revision, put.lease)
        return Event(put.key, put.value, created, revision, put.lease)

    def _delete(self, keys: Sequence[str]) -> list[Event]:
        events = []
        for key in keys:
            held = self._items.pop(key, None)
            if held is None:
                continue
            del self._keys[bisect_left(self._keys, key)]
            if held.lease and held.lease in self._leases:
                self._leases[held.lease].keys.discard(key)
            events.append(Event(key, None, 0, self.revision + 1))
        return events

    def _commit(self, events: Sequence[Event]) -> None:
        if not events:
            return
        self.revision += 1
        self._history.append(self.revision, events)
        for listener in tuple(self._listeners):
            listener()
