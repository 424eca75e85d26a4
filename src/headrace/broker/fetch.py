"""Driver: reading for consumers. Answers at once when there is enough, else parks on the partitions until there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import NamedTuple, Protocol

from headrace.broker.pacing import Pace
from headrace.broker.partition import FetchWaiter, Partition, ReplicaWaiter
from headrace.broker.queueing.local.delayed import without_waiting
from headrace.broker.throttles import ReplicationThrottle
from headrace.broker.views.scanner import Lens
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.core.stored import Piece, Stored
from headrace.records.batch import scan

NEWS_S = 0.15
"""A follower that has everything hears this late of a high watermark that has moved, unless data comes before: an answer of its own
for each would be another round for each append."""
NEAR_NEWS_S = 0.01
"""The same where consumers were sent to a replica near to them (KIP-392): they can't read what its high watermark has not passed."""

WIDE_NEWS_MS = 150


class WantedPartition(Protocol):
    """What a fetch asks of one partition (fetch_sessions.Wanted)."""

    fetch_offset: int
    leader_epoch: int
    max_bytes: int


class Got(NamedTuple):
    """What one partition gave."""

    error: ErrorKind
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    data: Piece = b""
    aborted: list[tuple[int, int]] | None = None
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) for a follower whose log parts from ours (R22)."""
    preferred_replica: int = -1
    """A replica nearer to the consumer (KIP-392)."""


class FetchTarget(NamedTuple):
    wanted: WantedPartition
    partition: Partition | None
    verdict: Got | None = None
    """The answer, when it is known without reading."""
    lens: Lens | None = None
    """For a view: what stands between the partition and the reader (views.fetching)."""
    throttle: ReplicationThrottle | None = None
    """For a follower that catches up, when the topic says so (KIP-73)."""


class FetchReader(NamedTuple):
    """Who reads: a follower up to the end, a consumer up to what is committed."""

    replica_id: int = -1
    read_committed: bool = False
    rack: str = ""
    takes_files: bool = False
    """Bytes need not be read: its connection sends them from where they lie."""

    @property
    def is_replica(self) -> bool:
        return self.replica_id >= 0


def read_one(target: FetchTarget, max_bytes: int, reader: FetchReader) -> Got:
    if target.verdict is not None:
        return target.verdict
    partition = target.partition
    assert partition is not None
    wanted = target.wanted
    refusal = partition.fetch_refusal(
        wanted.leader_epoch, from_follower=bool(reader.rack), is_replica=reader.is_replica
    )
    if refusal is not ErrorKind.NONE:
        return Got(refusal)
    log, high_watermark, stable = partition.log, partition.high_watermark, partition.last_stable_offset
    start, offset = log.start_offset, wanted.fetch_offset
    if offset < start or offset > log.end_offset:
        if partition.is_leader or offset < start:
            return Got(ErrorKind.OFFSET_OUT_OF_RANGE, high_watermark, stable, start)
        # A follower that is behind is no proof that the offset does not exist.
        return Got(ErrorKind.OFFSET_NOT_AVAILABLE, high_watermark, stable, start)
    committed = stable if reader.read_committed else high_watermark
    upto = log.end_offset if reader.is_replica else committed
    data: Piece = b""
    throttle = target.throttle
    if max_bytes > 0 and offset < upto and not (throttle is not None and throttle.is_spent):
        if throttle is not None:
            max_bytes = min(max_bytes, throttle.most_bytes)
        found: Piece | Rejected
        if reader.takes_files and not partition.config.delay_enabled:
            found = partition.read_or_lend(offset, max_bytes, upto)
        else:
            found = partition.read(offset, max_bytes, upto)
            if partition.config.delay_enabled and not reader.is_replica and not isinstance(found, Rejected):
                found = without_waiting(found)
        if isinstance(found, Rejected):
            return Got(found.kind, high_watermark, stable, start)
        data = found
        if throttle is not None:
            throttle.spend(len(data))
    aborted = None
    if reader.read_committed:
        aborted = aborted_in(partition, offset, data) if data else []
    return Got(ErrorKind.NONE, high_watermark, stable, start, data, aborted)


def aborted_in(partition: Partition, offset: int, data: Piece) -> list[tuple[int, int]]:
    """R48: the aborted transactions that overlap what is returned, so that the client can leave them out."""
    end = offset
    if isinstance(data, Stored):
        end = data.next_offset
    else:
        for _, header in scan(data):
            end = header.next_offset
    return [
        (entry.producer_id, entry.first_offset) for entry in partition.log.aborted_transactions(offset, end)
    ]


class LocalFetch(NamedTuple):
    targets: Sequence[FetchTarget]
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    reader: FetchReader


class _Attempt:
    """Reads what is there, partition by partition, and knows whether that is enough to answer now."""

    __slots__ = ("_failed", "_left", "_request", "_total", "results")

    def __init__(self, request: LocalFetch) -> None:
        self._request = request
        self._left = request.max_bytes
        self._total = 0
        self._failed = False
        self.results: list[Got] = []

    def read(self, target: FetchTarget) -> None:
        limit = min(self._left, target.wanted.max_bytes)
        if not self._total:
            # KIP-74: the log returns the first batch whole, so that a large one is never stuck; it needs to be asked.
            limit = max(limit, 1)
        got = read_one(target, limit, self._request.reader)
        self.results.append(got)
        size = len(got.data)
        self._total += size
        self._left -= size
        self._failed = self._failed or target.verdict is not None or got.error is not ErrorKind.NONE

    @property
    def is_enough(self) -> bool:
        return self._failed or self._total >= self._request.min_bytes


def _attempt(request: LocalFetch) -> _Attempt:
    attempt = _Attempt(request)
    for target in request.targets:
        attempt.read(target)
    return attempt


def _places(request: LocalFetch) -> Iterator[dict[FetchWaiter, None] | dict[ReplicaWaiter, None]]:
    """Where a fetch waits for news."""
    replica = request.reader.is_replica
    for target in request.targets:
        if target.partition is not None:
            yield target.partition.replica_waiters if replica else target.partition.fetch_waiters


def _news_s(request: LocalFetch) -> float:
    """When to tell a follower what its last answer did not say; the longest of all times when there is no such thing."""
    replica_id, soonest = request.reader.replica_id, inf
    if replica_id >= 0:
        for target in request.targets:
            partition = target.partition
            if partition is not None and partition.told.get(replica_id) != (
                partition.high_watermark,
                partition.log.start_offset,
            ):
                soonest = min(soonest, NEAR_NEWS_S if partition.has_near_readers else NEWS_S)
    return soonest


def _note_told(request: LocalFetch, results: list[Got]) -> None:
    replica_id = request.reader.replica_id
    if replica_id >= 0:
        for target, got in zip(request.targets, results, strict=True):
            if target.partition is not None and got.error is ErrorKind.NONE:
                target.partition.told[replica_id] = got.high_watermark, got.log_start_offset


class ParkedFetch:
    """A long poll: wakes when one of its partitions moves, answers when there is enough or time is up."""

    __slots__ = ("_done", "_news_s", "_request", "_respond", "_scheduled", "_timer")

    def __init__(self, request: LocalFetch, respond: Callable[[list[Got]], None]) -> None:
        self._request = request
        self._respond = respond
        self._done = False
        self._scheduled = False
        self._news_s = _news_s(request)
        wait_s = min(request.max_wait_ms / 1000, self._news_s)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._time_up)
        self._park()

    def _park(self) -> None:
        for waiters in _places(self._request):
            waiters[self] = None

    def wake(self) -> None:
        # Several partitions may move in one turn of the loop; look once, after all of them.
        if not self._scheduled and not self._done:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._look)

    def news(self, soon: bool) -> None:
        news_s = NEAR_NEWS_S if soon else NEWS_S
        if news_s < self._news_s and not self._done:
            self._news_s = news_s
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(news_s, self._time_up)

    def hurry(self) -> None:
        """Its client has sent another request and waits for that."""
        self._time_up()

    def _look(self) -> None:
        self._scheduled = False
        if self._done:
            return
        attempt = _attempt(self._request)
        if attempt.is_enough:
            self._finish(attempt.results)
        else:
            self._park()

    def _time_up(self) -> None:
        if not self._done:
            self._finish(_attempt(self._request).results)

    def _finish(self, results: list[Got]) -> None:
        self.cancel()
        _note_told(self._request, results)
        self._respond(results)

    def cancel(self) -> None:
        self._done = True
        self._timer.cancel()
        for waiters in _places(self._request):
            waiters.pop(self, None)


def fetch(request: LocalFetch, respond: Callable[[list[Got]], None]) -> ParkedFetch | None:
    """Answer through `respond`, now or later; the parked fetch is returned so that a lost client can cancel it."""
    attempt = _attempt(request)
    if attempt.is_enough or request.max_wait_ms <= 0 or not request.targets:
        _note_told(request, attempt.results)
        respond(attempt.results)
        return None
    return ParkedFetch(request, respond)


class WideFetch:
    """As a ParkedFetch, for so many partitions that a look at all of them is cut into slices (A3)."""

    __slots__ = ("_cancelled", "_deadline", "_pace", "_request", "_woken")

    def __init__(self, request: LocalFetch, pace: Pace) -> None:
        self._request = request
        self._pace = pace
        self._woken = asyncio.Event()
        self._cancelled = False
        wait_ms = max(request.max_wait_ms, 0)
        if request.reader.is_replica:
            wait_ms = min(wait_ms, WIDE_NEWS_MS)
        self._deadline = asyncio.get_running_loop().time() + wait_ms / 1000

    def wake(self) -> None:
        self._woken.set()

    def news(self, soon: bool) -> None:
        """A look at so many partitions is dear, so they are told at fixed times."""

    def hurry(self) -> None:
        self._deadline = 0.0
        self._woken.set()

    def cancel(self) -> None:
        """The client is gone."""
        self._cancelled = True
        self._woken.set()

    async def results(self, parked: Callable[[], None]) -> list[Got] | None:
        """What there is once it is enough or time is up; None when cancelled. `parked` is told before each wait."""
        loop = asyncio.get_running_loop()
        try:
            while not self._cancelled:
                self._woken.clear()
                # Before the look: what moves while others have their turn must not be missed.
                for waiters in _places(self._request):
                    waiters[self] = None
                attempt = _Attempt(self._request)
                async for target in self._pace.over(self._request.targets):
                    attempt.read(target)
                if attempt.is_enough or loop.time() >= self._deadline:
                    _note_told(self._request, attempt.results)
                    return attempt.results
                parked()
                await self._wait_until(self._deadline)
            return None
        finally:
            for waiters in _places(self._request):
                waiters.pop(self, None)

    async def _wait_until(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._woken.wait()
        except TimeoutError:
            pass
