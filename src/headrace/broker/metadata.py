"""Driver: keeps the cluster image in step with the coordinator, and commits changes to it.

The watch is a hint (R3): the image takes an event only when it is newer than what it holds, and everything is read
again now and then. Every change is one compared transaction (R1) whose outcome is always found out (R5).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Generic, NamedTuple, TypeVar

from headrace.broker.runtime import Runtime
from headrace.broker.supervision import OR_END, Supervised
from headrace.cluster import changes
from headrace.cluster.changes import Change, Expect
from headrace.cluster.deltas import Delta, Undecodable
from headrace.cluster.image import ClusterImage
from headrace.coordinator.port import (
    Compare,
    CompareTarget,
    Coordinator,
    CoordinatorError,
    Delete,
    Operation,
    Put,
    Resync,
    Snapshot,
    TxnResult,
)
from headrace.coordinator.resolve import ResolvingWriter
from headrace.core.errors import ErrorKind, HeadraceError

log = logging.getLogger(__name__)

REREAD_S = 30.0
CATCH_UP_S = 10.0
WATCH_PATIENCE_S = 1.0
ATTEMPTS = 10
BACK_OFF_S = 0.005
"""Before the third attempt; doubled with each one after it, and a part of it drawn, so that two who met once do not meet for ever."""
_TARGETS = {
    "mod": CompareTarget.MOD_REVISION,
    "create": CompareTarget.CREATE_REVISION,
    "value": CompareTarget.VALUE,
}

Listener = Callable[[list[Delta]], None]
T = TypeVar("T")


_RESTORED = (
    "the coordinator went back from revision %d to %d: it was restored from a backup. What was created, moved or deleted since "
    "is unknown to it; data that no topic claims any more goes to the quarantine. This broker registers again."
)


class Restored(NamedTuple):
    """The coordinator went back to a backup, while we looked or between two lives of this broker."""

    from_revision: int
    to_revision: int


class Decision(NamedTuple, Generic[T]):
    """What is to be committed, in this order, and what holds once it is; without changes it holds already."""

    changes: Sequence[Change]
    result: T


class Metadata:
    def __init__(self, runtime: Runtime, coordinator: Coordinator, image: ClusterImage) -> None:
        self.image = image
        self.coordinator = coordinator
        self.revision = 0
        """Everything the coordinator did up to here is in the image."""
        self.restored: Restored | None = None
        self.epochs_before: dict[tuple[bytes, int], int] = {}
        """(topic id, partition) -> the leader epoch before the coordinator went back: it must not be given again (R9)."""
        self.listeners: list[Listener] = []
        self._runtime = runtime
        self._moved = asyncio.Event()
        self._tasks: list[Supervised] = []
        self._writer = ResolvingWriter(coordinator, f"writers/{image.broker_id}/admin", runtime.random_bytes)

    async def load(self) -> None:
        """Read everything once (R2); the listeners hear of it as of any change."""
        known = self.revision
        snapshot = await self.coordinator.read("")
        if snapshot.revision < known <= self.revision:
            # Reads are linearizable: what was known before this one began can't be news after it.
            self._went_back(snapshot)
        else:
            self._tell(self.image.resync(snapshot.items, snapshot.revision), snapshot.revision)

    def was_at(self, revision: int) -> None:
        """What an earlier life had heard of; the coordinator has been read (F10). A backup that was restored while every broker
        was down shows only here, and not any more once more has happened since than was forgotten."""
        if revision > self.revision:
            self.restored = Restored(revision, self.revision)
            log.critical(_RESTORED, revision, self.revision)

    def _went_back(self, snapshot: Snapshot) -> None:
        """F10: a backup was restored. Everything is taken as it is there now; what we knew is kept only where forgetting it
        would do harm: leader epochs (R9), and the data of replicas that the backup does not know (S12, replicas.py)."""
        before, self.restored = self.revision, Restored(self.revision, snapshot.revision)
        log.critical(_RESTORED, before, snapshot.revision)
        for place, epoch in self.image.leader_epochs().items():
            self.epochs_before[place] = max(epoch, self.epochs_before.get(place, -1))
        self.revision = 0
        self._tell(self.image.replace(snapshot.items, snapshot.revision), snapshot.revision)

    def start(self) -> None:
        self._tasks = [
            self._runtime.supervise("watch metadata", self._watch, OR_END),
            self._runtime.supervise("read metadata again", self._read_again),
        ]

    def stop(self) -> None:
        """Before the coordinator is closed: a watch that ends by itself is trouble."""
        for task in self._tasks:
            task.cancel()

    async def _watch(self) -> None:
        async with aclosing(self.coordinator.watch("", self.revision + 1)) as updates:
            async for update in updates:
                if isinstance(update, Resync):
                    snapshot = update.snapshot
                    if update.restored and snapshot.revision < self.revision:
                        self._went_back(snapshot)
                        continue
                    self._tell(self.image.resync(snapshot.items, snapshot.revision), snapshot.revision)
                else:
                    deltas = [delta for event in update.events for delta in self.image.apply(event)]
                    self._tell(deltas, update.revision)

    async def _read_again(self) -> None:
        while True:
            await asyncio.sleep(REREAD_S)
            try:
                await self.load()
            except CoordinatorError as problem:
                log.warning("the coordinator does not answer: %s", problem)

    def _tell(self, deltas: list[Delta], revision: int) -> None:
        self.revision = max(self.revision, revision)
        for delta in deltas:
            if isinstance(delta, Undecodable):
                log.error("metadata key %s is not readable and was ignored: %s", delta.key, delta.problem)
        if deltas:
            for listener in self.listeners:
                try:
                    listener(deltas)
                except Exception as problem:  # one that raises must not keep the news from the others
                    self._runtime.unexpected("metadata listener", problem)
        self.look_again()

    def look_again(self) -> None:
        """For whoever waits: something has changed in the image, or in what this broker has made of it."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def moves(self, seconds: float) -> None:
        """Something has changed, or so much time has passed."""
        moved = self._moved
        try:
            async with asyncio.timeout(seconds):
                await moved.wait()
        except TimeoutError:
            pass

    async def wait_until(self, condition: Callable[[], bool], seconds: float = CATCH_UP_S) -> None:
        """Until the image satisfies `condition`. Raises REQUEST_TIMED_OUT."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    await self._moved.wait()
        except TimeoutError:
            raise HeadraceError(
                ErrorKind.REQUEST_TIMED_OUT, "the cluster's metadata did not settle in time"
            ) from None

    async def commit(
        self, change: Change, writer: ResolvingWriter | None = None, *, wait: bool = True
    ) -> TxnResult:
        """One transaction; when this returns the image has it, or, when it was refused, what made it so.

        Raises when the coordinator is away.
        """
        compares = [Compare(entry.key, _TARGETS[entry.target], entry.expected) for entry in change.compares]
        try:
            result = await (writer or self._writer).txn(compares, _operations(change.ops))
        except CoordinatorError as problem:
            raise HeadraceError(
                ErrorKind.BROKER_NOT_AVAILABLE, f"the coordinator does not answer: {problem}"
            ) from problem
        if wait:
            await self._see(result)
        return result

    async def _see(self, result: TxnResult) -> None:
        """The watch is a hint (R3): when it does not bring the news soon, or we decided from old news, look."""
        try:
            if result.succeeded:
                await self.wait_until(lambda: self.revision >= result.revision, WATCH_PATIENCE_S)
                return
        except HeadraceError:
            log.info("the watch is late; reading instead")
        try:
            await self.load()
        except CoordinatorError as problem:
            raise HeadraceError(
                ErrorKind.BROKER_NOT_AVAILABLE, f"the coordinator does not answer: {problem}"
            ) from problem

    def unchanged(self, key: str) -> Expect:
        """That nobody has written this key since the image learned of it (R1)."""
        return Expect(key, "mod", self.image.mod_revision(key))

    async def compare_and_swap(
        self,
        decide: Callable[[], Awaitable[Decision[T]]],
        what: str,
        *,
        contended: ErrorKind = ErrorKind.CONFLICT,
    ) -> T:
        """Decide from the image and commit that; when others were faster, decide again from what they did.

        `what` others keep changing is for the person who is told `contended` after too many attempts. Raises what `decide` raises.
        """
        for attempt in range(ATTEMPTS):
            if attempt > 1:
                share = (1 + self._runtime.random_bytes(1)[0] / 256) / 2
                await asyncio.sleep(BACK_OFF_S * (1 << (attempt - 2)) * share)
            decision = await decide()
            if await self.commit_all(decision.changes):
                return decision.result
        raise HeadraceError(contended, f"others keep changing {what}; try again")

    async def commit_all(self, transactions: Iterable[Change]) -> bool:
        """In order; stops at the first refusal, because what follows was decided from the same image."""
        for change in transactions:
            result = await self.commit(change)
            if not result.succeeded:
                return False
        return True


def _operations(ops: Iterable[changes.Op]) -> list[Operation]:
    return [Put(*op) if isinstance(op, changes.PutKey) else Delete(op.key) for op in ops]
