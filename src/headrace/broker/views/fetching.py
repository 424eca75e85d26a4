"""Driver: a fetch that asks for views, alone or among ordinary partitions.

It answers when enough has matched. When its time is up and nothing did, a batch that only steps over offsets says how far
the broker has looked, so that no client stands still before a gap, its lag falls, and nothing is looked at twice.
A client that has just reached the end is told so soon, and not after its whole patience: whoever reads a range waits for
exactly that. `HURRY_S` bounds how often this happens while records that do not match pour in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

from headrace.broker.fetch import FetchTarget, Got, LocalFetch, aborted_in, read_one
from headrace.broker.partition import FetchWaiter
from headrace.broker.views.scanner import Lens
from headrace.broker.views.views import Views
from headrace.core.errors import ErrorKind
from headrace.core.ports import Buffer
from headrace.records.batch import scan
from headrace.records.selection import skip_batch

HURRY_S = 0.1
OVERTIME_S = 5.0
"""How long past its time a fetch waits for the piece at hand when it has nothing at all to say yet."""


class Look(NamedTuple):
    """One attempt."""

    results: list[Got]
    enough: bool
    moved: bool
    """Some view was seen beyond where the client stands."""
    missing: list[tuple[Lens, int]]
    """Where to look on."""


class ViewFetch:
    """Like fetch.ParkedFetch; `cancel` when the client is gone."""

    __slots__ = ("_begun", "_done", "_request", "_respond", "_scheduled", "_timer", "_views")

    def __init__(self, views: Views, request: LocalFetch, respond: Callable[[list[Got]], None]) -> None:
        self._views = views
        self._request = request
        self._respond = respond
        self._done = self._scheduled = False
        self._begun = asyncio.get_running_loop().time()
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    @property
    def is_done(self) -> bool:
        return self._done

    def wake(self) -> None:
        if not self._scheduled and not self._done:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._scheduled = False
        if self._done:
            return
        look = self._attempt(last=False)
        if look.enough:
            self._finish(look.results)
            return
        deadline = self._begun + self._patience_s(look)
        if asyncio.get_running_loop().time() >= deadline:
            self._finish(self._attempt(last=True).results)
            return
        self._park(deadline)
        for lens, offset in look.missing:
            self._views.scanner.want(lens, offset)

    def _patience_s(self, look: Look) -> float:
        patience_s = max(self._request.max_wait_ms, 0) / 1000 if self._request.min_bytes > 0 else 0.0
        if look.moved:
            return patience_s if look.missing else min(patience_s, HURRY_S)
        return patience_s + OVERTIME_S if look.missing else patience_s

    def _park(self, deadline: float) -> None:
        for waiters in self._places():
            waiters[self] = None
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(deadline, self._look)

    def _places(self) -> Iterator[dict[FetchWaiter, None]]:
        for target in self._request.targets:
            if target.partition is not None:
                yield target.partition.fetch_waiters
            if target.lens is not None:
                yield target.lens.strip.waiters

    def _finish(self, results: list[Got]) -> None:
        self.cancel()
        for target, got in zip(self._request.targets, results, strict=True):
            if target.lens is not None:
                target.lens.partition.bytes_out += len(got.data)
        self._respond(results)

    def cancel(self) -> None:
        self._done = True
        if self._timer is not None:
            self._timer.cancel()
        for waiters in self._places():
            waiters.pop(self, None)

    # -- reading -----------------------------------------------------------------------------------------------

    def _attempt(self, *, last: bool) -> Look:
        request = self._request
        results: list[Got] = []
        missing: list[tuple[Lens, int]] = []
        left, total, failed, moved = request.max_bytes, 0, False, False
        for target in request.targets:
            limit = min(left, target.wanted.max_bytes)
            if not total:
                limit = max(limit, 1)  # KIP-74
            if target.lens is None or target.verdict is not None:
                got = read_one(target, limit, request.reader)
                size = len(got.data)
            else:
                got, size, seen_to, unseen = self._read(target, target.lens, limit, last=last)
                moved = moved or seen_to > target.wanted.fetch_offset
                if unseen:
                    missing.append((target.lens, seen_to))
            results.append(got)
            total += size
            left -= size
            failed = failed or target.verdict is not None or got.error is not ErrorKind.NONE
        return Look(results, failed or (total > 0 and total >= request.min_bytes), moved, missing)

    def _read(
        self, target: FetchTarget, lens: Lens, max_bytes: int, *, last: bool
    ) -> tuple[Got, int, int, bool]:
        """What a view gives, how much of it matched, how far the broker has looked, and whether it should look on."""
        partition, wanted, reader = lens.partition, target.wanted, self._request.reader
        offset = wanted.fetch_offset
        refusal = partition.fetch_refusal(wanted.leader_epoch, from_follower=False)
        if refusal is ErrorKind.NONE:
            refusal = self._views.scanner.is_in_trouble(lens) or refusal
        if refusal is not ErrorKind.NONE:
            return Got(refusal), 0, offset, False
        start, high_watermark, stable = (
            partition.log.start_offset,
            partition.high_watermark,
            partition.last_stable_offset,
        )
        if offset < start or offset > partition.log.end_offset:
            return Got(ErrorKind.OFFSET_OUT_OF_RANGE, high_watermark, stable, start), 0, offset, False
        upto = stable if reader.read_committed else high_watermark
        data: Buffer = b""
        size, seen_to, unseen = 0, offset, False
        if max_bytes > 0 and offset < upto:
            lens.refresh()
            found = lens.strip.find(offset, max_bytes, upto)
            data, size, seen_to = found.data, len(found.data), found.seen_to
            unseen = seen_to < upto and not found.is_full
            if seen_to > offset and (last if not size else seen_to >= upto):
                data = self._stepped(found.data, offset, seen_to, found.epoch)
        aborted = None
        if reader.read_committed:
            aborted = aborted_in(partition, offset, data) if data else []
        got = Got(ErrorKind.NONE, high_watermark, stable, start, data, aborted)
        return got, size, seen_to, unseen

    def _stepped(self, data: Buffer, offset: int, seen_to: int, epoch: int) -> Buffer:
        """With a last batch that brings the client to `seen_to`, unless the data ends there by itself."""
        following = offset
        for _, header in scan(data):
            following = header.next_offset
        if following >= seen_to:
            return data
        return b"".join((data, skip_batch(max(following, offset), seen_to, epoch, self._views.wall_ms())))


def fetch_views(views: Views, request: LocalFetch, respond: Callable[[list[Got]], None]) -> ViewFetch | None:
    """As fetch.fetch: answer through `respond`, now or later."""
    begun = ViewFetch(views, request, respond)
    return None if begun.is_done else begun
