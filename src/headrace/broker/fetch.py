"""Driver: reading for consumers. Answers at once when there is enough, else parks on the partitions until there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from headrace.broker.partition import FetchWaiter, Partition
from headrace.broker.queueing.delayed import without_waiting
from headrace.broker.views.scanner import Lens
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.core.ports import Buffer
from headrace.records.batch import scan


class Wanted(Protocol):
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
    data: Buffer = b""
    aborted: list[tuple[int, int]] | None = None
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) for a follower whose log parts from ours (R22)."""
    preferred_replica: int = -1
    """A replica nearer to the consumer (KIP-392)."""


class FetchTarget(NamedTuple):
    wanted: Wanted
    partition: Partition | None
    verdict: Got | None = None
    """The answer, when it is known without reading."""
    lens: Lens | None = None
    """For a view: what stands between the partition and the reader (views.fetching)."""


class Reader(NamedTuple):
    """Who reads: a follower up to the end, a consumer up to what is committed."""

    replica_id: int = -1
    read_committed: bool = False
    rack: str = ""

    @property
    def is_replica(self) -> bool:
        return self.replica_id >= 0


def read_one(target: FetchTarget, max_bytes: int, reader: Reader) -> Got:
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
    data: Buffer = b""
    if max_bytes > 0 and offset < upto:
        found = partition.read(offset, max_bytes, upto)
        if isinstance(found, Rejected):
            return Got(found.kind, high_watermark, stable, start)
        data = without_waiting(found) if partition.config.delay_enabled and not reader.is_replica else found
    aborted = None
    if reader.read_committed:
        aborted = aborted_in(partition, offset, data) if data else []
    return Got(ErrorKind.NONE, high_watermark, stable, start, data, aborted)


def aborted_in(partition: Partition, offset: int, data: Buffer) -> list[tuple[int, int]]:
    """R48: the aborted transactions that overlap what is returned, so that the client can leave them out."""
    end = offset
    for _, header in scan(data):
        end = header.next_offset
    return [
        (entry.producer_id, entry.first_offset) for entry in partition.log.aborted_transactions(offset, end)
    ]


class FetchRequest(NamedTuple):
    targets: Sequence[FetchTarget]
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    reader: Reader


def _attempt(request: FetchRequest) -> tuple[list[Got], bool]:
    """Read what is there, and whether that is enough to answer now."""
    results: list[Got] = []
    left = request.max_bytes
    total = 0
    failed = False
    for target in request.targets:
        limit = min(left, target.wanted.max_bytes)
        if not total:
            # KIP-74: the log returns the first batch whole, so that a large one is never stuck; it needs to be asked.
            limit = max(limit, 1)
        got = read_one(target, limit, request.reader)
        results.append(got)
        size = len(got.data)
        total += size
        left -= size
        failed = failed or target.verdict is not None or got.error is not ErrorKind.NONE
    return results, failed or total >= request.min_bytes


class ParkedFetch:
    """A long poll: wakes when one of its partitions moves, answers when there is enough or time is up."""

    __slots__ = ("_done", "_request", "_respond", "_scheduled", "_timer")

    def __init__(self, request: FetchRequest, respond: Callable[[list[Got]], None]) -> None:
        self._request = request
        self._respond = respond
        self._done = False
        self._scheduled = False
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(request.max_wait_ms / 1000, self._time_up)
        self._park()

    def _park(self) -> None:
        for waiters in self._places():
            waiters[self] = None

    def _places(self) -> Iterator[dict[FetchWaiter, None]]:
        replica = self._request.reader.is_replica
        for target in self._request.targets:
            if target.partition is not None:
                yield target.partition.replica_waiters if replica else target.partition.fetch_waiters

    def wake(self) -> None:
        # Several partitions may move in one turn of the loop; look once, after all of them.
        if not self._scheduled and not self._done:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._scheduled = False
        if self._done:
            return
        results, enough = _attempt(self._request)
        if enough:
            self._finish(results)
        else:
            self._park()

    def _time_up(self) -> None:
        if not self._done:
            self._finish(_attempt(self._request)[0])

    def _finish(self, results: list[Got]) -> None:
        self.cancel()
        self._respond(results)

    def cancel(self) -> None:
        self._done = True
        self._timer.cancel()
        for waiters in self._places():
            waiters.pop(self, None)


def fetch(request: FetchRequest, respond: Callable[[list[Got]], None]) -> ParkedFetch | None:
    """Answer through `respond`, now or later; the parked fetch is returned so that a lost client can cancel it."""
    results, enough = _attempt(request)
    if enough or request.max_wait_ms <= 0 or not request.targets:
        respond(results)
        return None
    return ParkedFetch(request, respond)
