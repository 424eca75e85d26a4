"""Driver: sending single messages. Those that come in one turn of the loop leave as one batch, with one sync."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

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

Committed = Callable[[Partition, int, Sequence[Record]], None]
"""Told of what is committed just as it was sent, and from which offset on."""

Wrote = Callable[[Partition, int, Sequence[Record], bool], None]
"""The same of what was written, and whether it lies in the log just as it was sent."""


class Sender:
    """Of one partition."""

    def __init__(self, runtime: Runtime, partition: Partition, wrote: Wrote, committed: Committed) -> None:
        self._runtime = runtime
        self._partition = partition
        self._wrote = wrote
        self._committed = committed
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
        records, futures = zip(*waiting, strict=True)
        try:
            self._write(records, futures)
        except Exception as problem:
            # Nobody calls us who could hear of it, and those who sent must not wait for ever (F17).
            self._runtime.unexpected("send", problem, str(self._partition.tp))
            _fail(
                futures,
                HeadraceError(ErrorKind.UNKNOWN_SERVER_ERROR, "the message may or may not be written"),
            )

    def _write(self, records: tuple[Record, ...], futures: tuple[asyncio.Future[int], ...]) -> None:
        clock, partition = self._runtime.clock, self._partition
        wall_ms = clock.wall_ms()
        # A topic may have its batches marked, compressed or stamped: then what lies in the log is not what was sent. As it is
        # configured now, when it is written.
        stays_as_sent = (
            not partition.opens_batches and partition.config.message_timestamp_type == "CreateTime"
        )
        writable = memoryview(bytearray(build_batch(records, wall_ms=wall_ms)))
        taken = take(
            partition,
            writable,
            acks=-1,
            version=PRODUCE_VERSION,
            wall_ms=wall_ms,
            trusted=True,
        )
        if taken.error is not ErrorKind.NONE:
            _fail(futures, HeadraceError(taken.error, taken.message or ""))
            return
        self._wrote(partition, taken.base_offset, records, stays_as_sent)

        def committed(kind: ErrorKind) -> None:
            if kind is not ErrorKind.NONE:
                _fail(futures, HeadraceError(kind))
                return
            for offset, future in enumerate(futures, taken.base_offset):
                if not future.done():
                    future.set_result(offset)
            if stays_as_sent:
                self._committed(partition, taken.base_offset, records)

        partition.when_committed(taken.commit_offset, clock.now_ms() + ACK_MS, committed)

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
        if late:
            _fail(late, HeadraceError(ErrorKind.NOT_COORDINATOR, "the queue has changed meanwhile"))
        return kept


def _fail(futures: Iterable[asyncio.Future[int]], problem: HeadraceError) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(problem)
