"""Driver: what the log says about new messages, in the words of the engine (queues.commands.Message).

Most batches hold nothing special: that their bytes do not mention any header of ours is found out without opening them. A
batch that can't be opened holds nothing for a queue, as it does for any other reader; it must not block those behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.queueing import names
from headrace.broker.queueing.local.delayed import (
    TRACE,
    due_ms,
    has_released,
    has_waiting,
    is_waiting,
    number,
    read_dues,
)
from headrace.broker.queueing.local.payloads import is_aborted
from headrace.core.limits import KIB, MAX_DECOMPRESSED_BYTES
from headrace.core.plan import Rejected
from headrace.core.ports import Buffer
from headrace.core.tuples import new_tuple
from headrace.queues.commands import LoggedMessage, WantedRecords
from headrace.queues.config import DEFAULT_PRIORITY, MAX_PRIORITY, QueueConfig
from headrace.queues.ranges import Range
from headrace.records.batch import BatchHeader, CorruptBatch, scan
from headrace.records.build import Headers, Record
from headrace.records.filters import Filter, FilterInput
from headrace.records.opened import OpenBatch
from headrace.records.read import plain_body

READ_BYTES = 512 * KIB
MAX_LOOKED = 1_000
"""Records of one look: opening them costs time, and others wait for their turn of the loop. A producer may well send ten
thousand in one batch, so a look may end in the middle of one."""


class IntakeProgress(NamedTuple):
    """Everything below `indexed_to` has been looked at."""

    indexed_to: int
    messages: list[LoggedMessage]
    skipped: list[Range]
    released: list[int] = []  # noqa: RUF012
    """Only for what waits: offsets of records that were let go, as their copies say."""


class Interest(NamedTuple):
    """What a queue wants to know."""

    config: QueueConfig
    accepts: Filter | None
    default_delay_ms: int
    only_waiting: bool

    @property
    def is_by_header(self) -> bool:
        """Whether it is headers alone that make a record special, and every record is for this queue."""
        return self.accepts is None and not self.only_waiting and not self.config.fifo

    @property
    def trace(self) -> bytes | None:
        """Bytes without which a batch has nothing special for the queue; None when each record has to be seen."""
        config = self.config
        if self.default_delay_ms or not self.is_by_header:
            return None
        others = config.fair or config.priorities or config.ttl or config.dedup_window_ms
        return names.OWN_PREFIX.encode() if others else TRACE


class BatchNature(Enum):
    """What can be said of a batch without opening it."""

    NOTHING = "nothing for the queue"
    ORDINARY = "nothing special"


class Intake:
    """Of one source: reads on where the engine stopped, and remembers the batch it stopped in."""

    __slots__ = ("_batch", "_batches", "_partition", "_place", "_position")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._position = -1
        self._batches: Iterator[tuple[Buffer, int, BatchHeader]] = iter(())
        self._batch: OpenBatch | None = None
        self._place = 0

    def look(
        self,
        wanted: WantedRecords,
        config: QueueConfig,
        accepts: Filter | None,
        default_delay_ms: int,
        *,
        only_waiting: bool = False,
        ordinary_to: int = 0,
    ) -> IntakeProgress:
        """One bounded piece: what is special, and what is none of the queue's business. The caller looks again while
        there is more. Records that wait in the log (delayed.py) are for the queue of those alone, `only_waiting`; the
        others get the copy that is written when it is due. Up to `ordinary_to` no record has a header of ours: whoever
        wrote them knows."""
        interest = Interest(config, accepts, default_delay_ms, only_waiting)
        if ordinary_to > wanted.first and interest.trace is not None:
            self._position = -1
            return IntakeProgress(ordinary_to, [], [])
        seen = IntakeProgress(0, [], [], [])
        position = wanted.first
        end = min(wanted.end, self._partition.last_stable_offset)
        left = min(MAX_LOOKED, max(1, wanted.limit))
        fresh = True
        if position != self._position:
            self._batches, self._batch = iter(()), None
        while position < end and left > 0:
            if self._batch is None:
                found = next(self._batches, None)
                if found is None:
                    if not fresh:
                        break  # the next piece is read in the next look
                    self._batches = self._read(position)
                    found = next(self._batches, None)
                    if found is None:
                        break
                header = found[2]
                opened = self._open(*found, interest)
                if isinstance(opened, BatchNature):
                    if opened is BatchNature.NOTHING:
                        _skip(seen.skipped, position, header.next_offset)
                    position, fresh = header.next_offset, False
                    left -= max(1, header.record_count)
                    continue
                self._batch, self._place = opened, opened.first_from(position)
            fresh = False
            before = self._place
            position = self._look_into(self._batch, position, left, interest, seen)
            left -= max(1, self._place - before)
            if self._place == len(self._batch):
                self._batch = None
        self._position = position
        return seen._replace(indexed_to=position)

    def _read(self, position: int) -> Iterator[tuple[Buffer, int, BatchHeader]]:
        """The batches of one piece of the log, which holds at least one whole."""
        data = self._partition.read(position, READ_BYTES, self._partition.last_stable_offset)
        if not isinstance(data, Rejected):
            for at, header in scan(data):
                if header.next_offset > position:
                    yield data, at, header

    def _open(
        self, data: Buffer, at: int, header: BatchHeader, interest: Interest
    ) -> OpenBatch | BatchNature:
        waiting = has_waiting(header)
        if header.is_control or is_aborted(self._partition, header):
            return BatchNature.NOTHING
        if interest.only_waiting and not (waiting or has_released(header)):
            return BatchNature.NOTHING
        try:
            body = plain_body(data, at, header, max_bytes=MAX_DECOMPRESSED_BYTES)
            is_dense = header.record_count == header.last_offset_delta + 1
            trace = interest.trace
            is_ordinary = trace is not None and trace not in body and is_dense and not waiting
            if is_ordinary and self._partition.config.validates_records:
                return BatchNature.ORDINARY
            opened = OpenBatch(data, at, header, body)
            return BatchNature.ORDINARY if is_ordinary else opened
        except CorruptBatch as problem:
            return self._unreadable(header, problem)

    def _look_into(
        self, batch: OpenBatch, position: int, left: int, interest: Interest, seen: IntakeProgress
    ) -> int:
        """Up to `left` records from `_place` on; everything before the offset that is returned has been looked at."""
        header = batch.header
        first, end = self._place, min(len(batch), self._place + left)
        self._place = end
        try:
            if interest.is_by_header and batch.is_dense and not has_waiting(header):
                seen.messages.extend(_by_header(batch, first, end, interest))
                return header.base_offset + end
            for place in range(first, end):
                record = batch.record(place)
                if interest.only_waiting and has_released(header):
                    origin = number(names.header(record.headers, names.DELAYED))
                    if origin is not None:
                        seen.released.append(origin)
                elif self._is_wanted(record, header, interest):
                    if record.offset > position:
                        _skip(seen.skipped, position, record.offset)
                    message = describe(record, interest.config, interest.default_delay_ms)
                    if message is not None:
                        seen.messages.append(message)
                    position = record.offset + 1
            upto = header.next_offset if end == len(batch) else batch.offset(end - 1) + 1
        except CorruptBatch as problem:
            self._unreadable(header, problem)
            self._place, upto = len(batch), header.next_offset
        if position < upto:
            _skip(seen.skipped, position, upto)
        return upto

    def _is_wanted(self, record: Record, header: BatchHeader, interest: Interest) -> bool:
        if has_waiting(header) and is_waiting(record.headers, record.timestamp) != interest.only_waiting:
            return False
        accepts = interest.accepts
        return accepts is None or accepts.matches(_as_input(record, self._partition))

    def _unreadable(self, header: BatchHeader, problem: CorruptBatch) -> BatchNature:
        self._partition.step_over(header.base_offset, problem)
        return BatchNature.NOTHING


def _skip(skipped: list[Range], first: int, end: int) -> None:
    if skipped and skipped[-1][1] == first:
        first = skipped.pop()[0]
    skipped.append((first, end))


def _by_header(batch: OpenBatch, first: int, end: int, interest: Interest) -> list[LoggedMessage]:
    config, default_delay_ms = interest.config, interest.default_delay_ms
    dues, unclear = read_dues(batch, first, end, default_delay_ms)
    messages: list[LoggedMessage] = []
    if config.delays:
        messages = [
            new_tuple(LoggedMessage, (offset, due, b"", b"", DEFAULT_PRIORITY, 0, timestamp))
            for offset, due, timestamp in dues
        ]
    if unclear:
        described = (describe(batch.record(place), config, default_delay_ms) for place in unclear)
        messages += [message for message in described if message is not None]
        messages.sort()
    return messages


def _as_input(record: Record, partition: Partition) -> FilterInput:
    tp = partition.tp
    return FilterInput(
        record.key, record.value, record.headers, record.timestamp, record.offset, tp.topic, tp.partition
    )


def describe(record: Record, config: QueueConfig, default_delay_ms: int = 0) -> LoggedMessage | None:
    """What is special about a record for a queue with this config; None when nothing is."""
    headers = record.headers
    due = due_ms(record.headers, record.timestamp, default_delay_ms) if config.delays else 0
    group = b""
    if config.fifo:
        group = names.header(headers, names.GROUP) or record.key or b""
    elif config.fair:
        group = names.header(headers, names.TENANT) or names.header(headers, names.GROUP) or b""
    dedup_id = b""
    if config.dedup_window_ms and not _had_a_life(headers):
        dedup_id = config.dedup_key(group, names.header(headers, names.DEDUP_ID) or b"")
    priority = DEFAULT_PRIORITY
    if config.priorities:
        given = number(names.header(headers, names.PRIORITY))
        priority = DEFAULT_PRIORITY if given is None else max(0, min(MAX_PRIORITY, given))
    expires_ms = 0
    if config.ttl:
        ttl_ms = number(names.header(headers, names.TTL_MS))
        expires_ms = record.timestamp + ttl_ms if ttl_ms is not None and ttl_ms >= 0 else 0
    if not (due or group or dedup_id or expires_ms or priority != DEFAULT_PRIORITY):
        return None
    return LoggedMessage(record.offset, due, group, dedup_id, priority, expires_ms, record.timestamp)


def _had_a_life(headers: Headers) -> bool:
    """Moved to the dead letters or back: the same id again is no second send, and dropping it would lose the message."""
    return any(name in (names.DEAD_SOURCE, names.MOVED) for name, _ in headers)
