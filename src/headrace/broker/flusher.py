"""Driver: group commit. One round of fdatasync covers every append that waits (S9).

A failed sync is never tried again: the kernel reports an error once and may then report success for data it has
dropped (S7). The whole log directory is taken out of service instead, and only a restart with a full scan brings
it back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from headrace.broker.runtime import Runtime
from headrace.core.ids import TopicPartition
from headrace.core.measures import Histogram
from headrace.core.ports import File
from headrace.log.results import Flush

log = logging.getLogger(__name__)

COMMIT_WINDOW_S = 0.005
"""How long appends nobody waits for may gather before they are synced."""

COMMIT_WINDOW_BYTES = 1024 * 1024

STALLED_MS = 10_000
"""A sync that takes longer, or does not begin for so long, is taken for a disk that hangs (R6)."""

SYNCS_AT_ONCE = 4
"""Files of one round that are synced side by side: they share the file system's own commits, and six take 1 ms together where they
took 12 one after the other (decision 0106). Fewer than there are threads for blocking work."""

SIDE_BY_SIDE_BYTES = 64 * 1024
"""Rounds of less go to one thread: more threads cost more CPU there (SQS singly: a sixth)."""

GATHER_S = 0.001
"""How long a sync may wait for those who were answered by the last one and are about to ask again. Never longer than half of
what the last sync took."""
QUIET_TURNS = 6
"""So many turns of the loop without another request: nobody else is coming."""


class FlushedLog(Protocol):
    def begin_flush(self) -> Flush | None: ...

    def flush_done(self, flush: Flush) -> None: ...

    def flush_failed(self, flush: Flush, problem: OSError) -> None: ...


class Replica(Protocol):
    """What group commit has to know of a partition."""

    @property
    def tp(self) -> TopicPartition: ...

    @property
    def log(self) -> FlushedLog: ...

    def on_durable(self) -> None: ...

    def mark_failed(self) -> None: ...


class Flusher:
    def __init__(self, runtime: Runtime, on_failure: Callable[[OSError], None]) -> None:
        self._runtime = runtime
        self._on_failure = on_failure
        self._dirty: dict[Replica, None] = {}
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._urgent = 0
        """Requests that wait for the next round, and how many the last two rounds served."""
        self._served = (0, 0)
        self._took_s = 0.0
        self.seconds = Histogram()
        """Of each round of fdatasync."""
        self.failure: OSError | None = None
        self.rounds = 0
        self.sync_started_ms: int | None = None
        """When the sync under way began; a hung disk shows here (S10, R6)."""
        self.waiting_since_ms: int | None = None
        """When the first of those came that the next sync is for; a flusher that is gone shows here (F16)."""

    def request(self, partition: Replica, size: int, *, urgent: bool, follows: bool = False) -> None:
        """`urgent` when somebody waits for the answer; otherwise the window may fill first. What a follower took from its
        leader comes all at once, so nobody is waited for who might come a little later."""
        if self.waiting_since_ms is None:
            self.waiting_since_ms = self._runtime.clock.now_ms()
        self._dirty[partition] = None
        self._waiting_bytes += size
        self._wake.set()
        self._urgent += urgent and not follows
        if urgent or self._waiting_bytes >= COMMIT_WINDOW_BYTES:
            self._hurry.set()

    def trouble(self) -> str | None:
        """Why what is appended does not become durable, for the lease and for whoever asks (R6)."""
        if self.failure is not None:
            return f"the log directory failed: {self.failure}"
        now_ms = self._runtime.clock.now_ms()
        for since_ms, what in (
            (self.sync_started_ms, "a sync has not come back for %d s"),
            (self.waiting_since_ms, "appends have waited %d s for group commit"),
        ):
            if since_ms is not None and now_ms - since_ms >= STALLED_MS:
                return what % ((now_ms - since_ms) // 1000)
        return None

    async def run(self) -> None:
        while self.failure is None:
            await self._wake.wait()
            if not self._hurry.is_set():
                try:
                    async with asyncio.timeout(COMMIT_WINDOW_S):
                        await self._hurry.wait()
                except TimeoutError:
                    pass
            await self._gather()
            await self.flush_now()

    async def _gather(self) -> None:
        """Several clients that wait for each answer ask again together, but the first of them a little earlier. A sync for
        it alone would make all the others wait for two."""
        if max(self._served) < 2:
            return  # one that comes alone each time is not kept waiting
        expected = sum(self._served)
        time = asyncio.get_running_loop().time
        deadline = time() + min(GATHER_S, self._took_s / 2)
        seen, quiet = self._urgent, 0
        while self._urgent < expected and quiet < QUIET_TURNS and time() < deadline:
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._urgent == seen else 0
            seen = self._urgent

    async def flush_now(self) -> None:
        """One round over everything dirty. Also called at stop, when the loop above has ended.

        What raises for one partition takes that replica offline; group commit goes on for the others (F16).
        """
        partitions, self._dirty = self._dirty, {}
        size, self._waiting_bytes = self._waiting_bytes, 0
        self.waiting_since_ms = None
        self._served = (self._served[1], self._urgent)
        self._urgent = 0
        self._wake.clear()
        self._hurry.clear()
        rounds: list[tuple[Replica, Flush]] = []
        files: list[File] = []
        for partition in partitions:
            try:
                flush = partition.log.begin_flush()
            except Exception as problem:
                self._give_up(partition, problem)
                continue
            if flush is not None:
                rounds.append((partition, flush))
                files += flush.files
        if files:
            self.sync_started_ms = self._runtime.clock.now_ms()
            began = asyncio.get_running_loop().time()
            try:
                await self._sync_all(files, size)
            except OSError as problem:
                for partition, flush in rounds:
                    partition.log.flush_failed(flush, problem)
                self._fail(problem)
                return
            except Exception as problem:
                # Not the disk's word, so not its end; but what is on it is unknown, and a second sync proves nothing (S7).
                for partition, _ in rounds:
                    self._give_up(partition, problem)
                return
            finally:
                self.sync_started_ms = None
            self._took_s = asyncio.get_running_loop().time() - began
            self.seconds.observe(self._took_s)
        self.rounds += 1
        for partition, flush in rounds:
            try:
                partition.log.flush_done(flush)
                partition.on_durable()
            except Exception as problem:
                self._give_up(partition, problem)

    async def _sync_all(self, files: list[File], size: int) -> None:
        """Every sync has come back when this returns or raises; a failure counts once, and the disk's word counts most (S7)."""
        if len(files) == 1 or size < SIDE_BY_SIDE_BYTES:
            await self._runtime.run_blocking(partial(_sync, files))
            return
        shares = [files[first::SYNCS_AT_ONCE] for first in range(min(SYNCS_AT_ONCE, len(files)))]
        calls = [self._runtime.run_blocking(partial(_sync, share)) for share in shares]
        problems = [
            found for found in await asyncio.gather(*calls, return_exceptions=True) if found is not None
        ]
        if problems:
            raise next((found for found in problems if isinstance(found, OSError)), problems[0])

    def _give_up(self, partition: Replica, problem: Exception) -> None:
        """Whether its promises are kept is not known any more: whoever holds another copy should lead."""
        self._runtime.unexpected("group commit", problem, str(partition.tp))
        partition.mark_failed()

    def _fail(self, problem: OSError) -> None:
        self.failure = problem
        log.critical(
            "fsync failed (%s): this log directory takes no more writes until a restart (S7)", problem
        )
        self._on_failure(problem)


def _sync(files: list[File]) -> None:
    for file in files:
        file.sync()
