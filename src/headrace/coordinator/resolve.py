"""Driver: transactions whose outcome is always found out (R5, rule 4 of the etcd rules).

Each transaction also compares and puts one key that only this writer uses, with a fresh token. When the outcome is
unknown the token says what happened, but its absence is not enough: the request may sit in a socket somewhere and land
later. So the writer moves its own key on by a second compare-and-swap. When that succeeds the first transaction can
never be applied; when it fails the first one was. Nothing is ever retried blindly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from headrace.coordinator.port import (
    Compare,
    Coordinator,
    CoordinatorError,
    CoordinatorUnavailable,
    Operation,
    OutcomeUnknown,
    Put,
    TxnResult,
)

_ATTEMPTS = 4
_TOKEN_BYTES = 16
_FENCE = b"fence:"


class ResolvingWriter:
    """One transaction at a time (R13). `key` belongs to this writer alone: `writers/<broker id>/<purpose>`.

    The key takes one compare and one operation of the transaction's limits.
    """

    def __init__(self, coordinator: Coordinator, key: str, token_bytes: Callable[[int], bytes]) -> None:
        self._coordinator = coordinator
        self._key = key
        self._token_bytes = token_bytes
        self._turn = asyncio.Lock()
        self._position: int | None = None  # mod_revision of our key; None: read it first
        self._pending: bytes | None = None  # the token of a transaction whose outcome is unknown

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        """As Coordinator.txn, but OutcomeUnknown only while the coordinator cannot be asked.

        After that, `resolve` tells the outcome; the next `txn` settles it first in any case, so that an older
        transaction never lands after a newer one.
        """
        async with self._turn:
            if self._pending is not None:
                try:
                    await self._settle(self._pending)
                except OutcomeUnknown as error:
                    raise CoordinatorUnavailable(f"an earlier transaction is in doubt: {error}") from error
            for _ in range(_ATTEMPTS):
                result = await self._attempt(compares, operations)
                if result is not None:
                    return result
            raise CoordinatorUnavailable(f"somebody else keeps writing {self._key!r}")

    async def resolve(self) -> TxnResult | None:
        """The outcome of the transaction that is still in doubt; None when there is none. Raises OutcomeUnknown."""
        async with self._turn:
            return None if self._pending is None else await self._settle(self._pending)

    async def _attempt(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TxnResult | None:
        """None: our key had been moved on by a late transaction of an earlier life of this writer; try again."""
        position = await self._read_position() if self._position is None else self._position
        token = self._token_bytes(_TOKEN_BYTES)
        mine = Compare.mod_revision(self._key, position)
        self._pending = token  # before the await: a cancelled call is in doubt as well
        try:
            result = await self._coordinator.txn([*compares, mine], [*operations, Put(self._key, token)])
        except OutcomeUnknown:
            return await self._settle(token)
        except (CoordinatorUnavailable, ValueError):
            self._pending = None
            raise
        self._pending = None
        if result.succeeded:
            self._position = result.revision
        elif await self._read_position() != position:
            return None
        return result

    async def _settle(self, token: bytes) -> TxnResult:
        try:
            for _ in range(_ATTEMPTS):
                result = await self._look_or_fence(token)
                if result is not None:
                    self._pending = None
                    return result
        except CoordinatorError as error:
            raise OutcomeUnknown(f"cannot be found out yet: {error}") from error
        raise OutcomeUnknown("cannot be found out yet: the fence does not take")

    async def _look_or_fence(self, token: bytes) -> TxnResult | None:
        assert self._position is not None
        held = await self._coordinator.get(self._key)
        revision = 0 if held is None else held.mod_revision
        if held is not None and held.value == token:
            self._position = revision
            return TxnResult(True, revision)
        if held is not None and held.value == _FENCE + token:
            self._position = revision
            return TxnResult(False, revision)
        if revision != self._position:
            # Another life of this writer took the key: ours may have been applied before that, or not.
            self._position, self._pending = None, None
            raise OutcomeUnknown(f"{self._key!r} was taken over by another writer")
        fence = [Put(self._key, _FENCE + token)]
        try:
            result = await self._coordinator.txn([Compare.mod_revision(self._key, revision)], fence)
        except OutcomeUnknown:
            return None
        if not result.succeeded:
            return None
        self._position = result.revision
        return TxnResult(False, result.revision)

    async def _read_position(self) -> int:
        held = await self._coordinator.get(self._key)
        self._position = 0 if held is None else held.mod_revision
        return self._position
