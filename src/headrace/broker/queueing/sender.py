"""Driver: sending single messages. Those that come in one turn of the loop leave as one batch, with one sync."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from headrace.broker.partition import Partition
from headrace.broker.produce import take
from headrace.broker.runtime import Runtime
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.records.build import Record, build_batch

MAX_BATCH_BYTES = 512 * 1024
ACK_MS = 30_000
PRODUCE_VERSION = 9

Fence = Callable[[], bool]
"""Asked in the same breath as the record is written: whether it may still be."""

Wrote = Callable[[Partition, int, Sequence[Record]], None]
"""Told of what was written, and from which offset on."""


class Sender:
    """Of one partition."""

    def __init__(self, runtime: Runtime, partition: Partition, wrote: Wrote) -> None:
        self._runtime = runtime
        self._partition = partition
        self._wrote = wrote
        self._waiting: list[tuple[Record, asyncio.Future[int]]] = []
        self._fences: dict[asyncio.Future[int], Fence] = {}
        self._bytes = 0
        self._scheduled = False

    def send(self, record: Record, fence: Fence | None = None) -> asyncio.Future[int]:
        """The record's offset, once it is committed. Fails with HeadraceError."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        self._waiting.append((record, future))
        if fence is not None:
            self._fences[future] = fence
        self._bytes += len(record.value or b"") + len(record.key or b"")
        if self._bytes >= MAX_BATCH_BYTES:
            self._flush()
        elif not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._flush)
        return future

    def _flush(self) -> None:
        self._scheduled = False
        waiting, self._waiting = self._waiting, []
        self._bytes = 0
        if self._fences:
            waiting = self._not_fenced_off(waiting)
        if not waiting:
            return
        clock = self._runtime.clock
        records = [record for record, _ in waiting]
        batch = build_batch(records, wall_ms=clock.wall_ms())
        writable = memoryview(bytearray(batch))
        taken = take(
            self._partition,
            writable,
            acks=-1,
            version=PRODUCE_VERSION,
            wall_ms=clock.wall_ms(),
            trusted=True,
        )
        futures = [future for _, future in waiting]
        if taken.error is not ErrorKind.NONE:
            _settle(futures, -1, HeadraceError(taken.error, taken.message or ""))
            return
        self._wrote(self._partition, taken.base_offset, records)

        def committed(kind: ErrorKind) -> None:
            problem = None if kind is ErrorKind.NONE else HeadraceError(kind)
            _settle(futures, taken.base_offset, problem)

        self._partition.when_committed(taken.commit_offset, clock.now_ms() + ACK_MS, committed)

    def _not_fenced_off(
        self, waiting: list[tuple[Record, asyncio.Future[int]]]
    ) -> list[tuple[Record, asyncio.Future[int]]]:
        fences, self._fences = self._fences, {}
        kept, late = [], []
        for one in waiting:
            fence = fences.get(one[1])
            if fence is None or fence():
                kept.append(one)
            else:
                late.append(one[1])
        _settle(late, -1, HeadraceError(ErrorKind.NOT_COORDINATOR, "the queue has changed meanwhile"))
        return kept


def _settle(futures: list[asyncio.Future[int]], base_offset: int, problem: HeadraceError | None) -> None:
    for number, future in enumerate(futures):
        if future.done():
            continue
        if problem is None:
            future.set_result(base_offset + number)
        else:
            future.set_exception(problem)
