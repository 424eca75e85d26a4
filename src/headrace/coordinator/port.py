"""Port: the coordinator, an etcd-like revisioned key/value store with transactions, watches and leases.

Every change of the store gets one new revision; all operations of a transaction share it. What callers may rely on:

- reads are linearizable and a `Snapshot` is consistent at its one revision (R2);
- a transaction is applied whole or not at all, and the three ways it can end are three different things:
  a `TxnResult`, `CoordinatorUnavailable` (it did not happen) and `OutcomeUnknown` (it may have happened, or may
  still happen: R5; `resolve.py` settles it);
- a watch is a hint (R3): it loses nothing and heals itself, but may repeat, so apply an event only when its
  `mod_revision` is above the one held (`cluster/image.py` does);
- a lease says when we notice a death, never what is legal (R8): expiry can be late, and is never a fence.

Keys are text with `/` between their parts. The limits are etcd's defaults, kept by every adapter, so that what works
on the embedded coordinator works on a cluster.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeAlias

MAX_KEY_BYTES = 1024
MAX_TXN_OPERATIONS = 128
"""etcd's --max-txn-ops, which bounds the compares and the operations of one transaction separately."""

MAX_TXN_BYTES = 1024 * 1024
"""All keys and values of one transaction; etcd refuses requests above 1.5 MiB."""

RESERVED_LEAF = "~heartbeat"
"""How the keys end that an adapter writes for itself; callers' keys may not, and never see one."""


class CoordinatorError(Exception):
    """The coordinator did not answer as asked. Brokers live on under R36; they never exit because of it."""


class CoordinatorUnavailable(CoordinatorError):
    """Nothing happened: the request was never sent, or was refused before it had an effect."""


class CoordinatorRefused(CoordinatorUnavailable):
    """Nothing happened and a retry will not help: credentials, permissions, quota."""


class LeaseNotFound(CoordinatorRefused):
    """A Put named a lease that has expired or never was; the whole transaction did not happen."""


class OutcomeUnknown(CoordinatorError):
    """The transaction may have happened, or may yet happen. Re-read before acting; assume the worst meanwhile (R5)."""


class KeyValue(NamedTuple):
    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0


class Snapshot(NamedTuple):
    """Everything under a prefix as of `revision`, sorted by key. Watch on from `revision + 1`."""

    revision: int
    items: list[KeyValue]


class CompareTarget(IntEnum):
    MOD_REVISION = 0
    CREATE_REVISION = 1
    VALUE = 2
    LEASE = 3


class Compare(NamedTuple):
    """One condition of a transaction: equality of one aspect of one key.

    An absent key has revisions and lease 0 and equals no value, not even the empty one.
    """

    key: str
    target: CompareTarget
    expected: int | bytes

    @classmethod
    def mod_revision(cls, key: str, revision: int) -> Compare:
        """The key was last changed at `revision`; 0 means it is absent."""
        return cls(key, CompareTarget.MOD_REVISION, revision)

    @classmethod
    def create_revision(cls, key: str, revision: int) -> Compare:
        """The key has lived since `revision`: the life of a controller or a registration (R1, R4)."""
        return cls(key, CompareTarget.CREATE_REVISION, revision)

    @classmethod
    def value(cls, key: str, value: bytes) -> Compare:
        return cls(key, CompareTarget.VALUE, value)

    @classmethod
    def lease(cls, key: str, lease_id: int) -> Compare:
        return cls(key, CompareTarget.LEASE, lease_id)

    def holds(self, held: KeyValue | None) -> bool:
        if self.target is CompareTarget.VALUE:
            return held is not None and held.value == self.expected
        if held is None:
            return self.expected == 0
        if self.target is CompareTarget.MOD_REVISION:
            return held.mod_revision == self.expected
        if self.target is CompareTarget.CREATE_REVISION:
            return held.create_revision == self.expected
        return held.lease == self.expected


class Put(NamedTuple):
    key: str
    value: bytes
    lease: int = 0
    """The key dies with this lease; 0 detaches it from any lease it had."""


class Delete(NamedTuple):
    key: str


class DeletePrefix(NamedTuple):
    prefix: str


Operation: TypeAlias = Put | Delete | DeletePrefix


class TxnResult(NamedTuple):
    succeeded: bool
    revision: int
    """Of the store after the transaction; when it succeeded and changed something, the mod_revision of what it put."""


class Event(NamedTuple):
    """One changed key. A deletion has value None, create_revision 0 and the revision it was deleted at."""

    key: str
    value: bytes | None
    create_revision: int
    mod_revision: int
    lease: int = 0


class WatchBatch(NamedTuple):
    """Changes in revision order; those of one revision are never split. All up to `revision` is now delivered.

    May be empty: then it only says how far the watch has come.
    """

    revision: int
    events: list[Event]


class Resync(NamedTuple):
    """History was lost to compaction, so the watch read everything anew and goes on from there (R3).

    A held key that is missing here, and was not changed after `snapshot.revision`, is gone.
    """

    snapshot: Snapshot
    restored: bool = False
    """The store went back behind what this watch had told: a backup was restored, and only this snapshot counts."""


WatchUpdate: TypeAlias = WatchBatch | Resync


class KeyLease(NamedTuple):
    id: int
    ttl_ms: int
    """As granted: may be more than was asked for, and is what R7 counts with."""


class Coordinator(Protocol):
    async def get(self, key: str) -> KeyValue | None:
        """Linearizable (R2). Raises CoordinatorUnavailable."""
        ...

    async def read(self, prefix: str) -> Snapshot:
        """Linearizable and consistent at one revision. The prefix "" is everything. Raises CoordinatorUnavailable."""
        ...

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        """If every compare holds, apply every operation, in order, at one new revision.

        Raises CoordinatorUnavailable (did not happen), LeaseNotFound, OutcomeUnknown (R5), and ValueError for a
        transaction no coordinator could take: bad key, too many operations, one key changed twice.
        """
        ...

    def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchUpdate, None]:
        """Changes from `from_revision` on, for ever, over reconnects; `from_revision` 0 begins with a Resync.

        Never raises CoordinatorError: while the coordinator is away it is silent (R36). Close it with `aclosing`.
        """
        ...

    async def grant(self, ttl_ms: int) -> KeyLease:
        """Raises CoordinatorUnavailable; a lease whose grant got lost expires by itself."""
        ...

    async def keep_alive(self, lease_id: int) -> int:
        """Renew in full; the remaining milliseconds, or 0 when the lease is gone. Raises CoordinatorUnavailable."""
        ...

    async def revoke(self, lease_id: int) -> None:
        """End the lease and delete its keys now. A lease that is gone already is no error."""
        ...

    async def close(self) -> None:
        """End watches and connections. Leases live on until they expire: revoke those that should not."""
        ...


def check_key(key: str) -> None:
    """Raise ValueError for a key not every adapter can hold: empty, too long, control characters or surrogates."""
    if not key.isprintable() or not 1 <= len(key.encode()) <= MAX_KEY_BYTES or key.endswith(RESERVED_LEAF):
        raise ValueError(f"bad coordinator key {key[:80]!r}: 1..{MAX_KEY_BYTES} bytes of printable text")


def check_txn(compares: Sequence[Compare], operations: Sequence[Operation]) -> None:
    """Raise ValueError for a transaction etcd would refuse, so that every adapter refuses the same ones."""
    if len(compares) > MAX_TXN_OPERATIONS or len(operations) > MAX_TXN_OPERATIONS:
        raise ValueError(f"a transaction takes at most {MAX_TXN_OPERATIONS} compares and operations")
    size = 0
    for compare in compares:
        check_key(compare.key)
        size += len(compare.key) + (len(compare.expected) if isinstance(compare.expected, bytes) else 8)
    puts: set[str] = set()
    deletes: list[Delete | DeletePrefix] = []
    for operation in operations:
        if isinstance(operation, Put):
            check_key(operation.key)
            if operation.key in puts:
                raise ValueError(f"one transaction changes {operation.key!r} twice")
            puts.add(operation.key)
            size += len(operation.key) + len(operation.value)
        else:
            if isinstance(operation, Delete):
                check_key(operation.key)
            deletes.append(operation)
    for removal in deletes:
        for key in puts:
            if key == removal.key if isinstance(removal, Delete) else key.startswith(removal.prefix):
                raise ValueError(f"one transaction changes {key!r} twice")
    if size > MAX_TXN_BYTES:
        raise ValueError(f"a transaction of {size} bytes; the limit is {MAX_TXN_BYTES}")


def prefix_end(prefix: str) -> str | None:
    """The first text after every text that starts with `prefix`, or None when there is none.

    Code points sort as their UTF-8 bytes do, so one bound serves Python, SQLite and etcd.
    """
    while prefix:
        last = ord(prefix[-1])
        if last < 0x10FFFF:
            # The surrogates have no UTF-8 form.
            return prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)
        prefix = prefix[:-1]
    return None
