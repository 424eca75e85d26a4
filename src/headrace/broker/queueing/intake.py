"""Driver: what the log says about new messages, in the words of the engine (queues.commands.Message)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.queueing import names
from headrace.broker.queueing.delayed import due_ms, has_released, has_waiting, is_waiting, number
from headrace.broker.queueing.payloads import is_aborted
from headrace.core.limits import KIB, MAX_DECOMPRESSED_BYTES
from headrace.core.plan import Rejected
from headrace.queues.commands import Message, Wanted
from headrace.queues.config import DEFAULT_PRIORITY, MAX_PRIORITY, QueueConfig
from headrace.queues.ranges import Range
from headrace.records.batch import scan
from headrace.records.build import Headers, Record
from headrace.records.filters import Filter, FilterInput
from headrace.records.read import iter_records

READ_BYTES = 256 * KIB
MAX_LOOKED = 1_000
"""Records of one look: opening them costs time, and others wait for their turn of the loop. A producer may well send ten
thousand in one batch, so a look may end in the middle of one."""


class Seen(NamedTuple):
    """Everything below `indexed_to` has been looked at."""

    indexed_to: int
    messages: list[Message]
    skipped: list[Range]
    released: list[int] = []  # noqa: RUF012
    """Only for what waits: offsets of records that were let go, as their copies say."""


class Step(NamedTuple):
    """One step through the log: nothing for the queue below `upto`, except a record right before it."""

    upto: int
    record: Record | None
    released: int = -1
    """What is right before is the copy of a record that waited there."""


class Intake:
    """Of one source: reads on where the engine stopped, and remembers the batch it stopped in."""

    __slots__ = ("_partition", "_position", "_steps")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._position = -1
        self._steps: Iterator[Step] = iter(())

    def look(
        self,
        wanted: Wanted,
        config: QueueConfig,
        accepts: Filter | None,
        default_delay_ms: int,
        *,
        only_waiting: bool = False,
    ) -> Seen:
        """One bounded piece: what is special, and what is none of the queue's business. The caller looks again while
        there is more. Records that wait in the log (delayed.py) are for the queue of those alone, `only_waiting`; the
        others get the copy that is written when it is due."""
        messages: list[Message] = []
        skipped: list[Range] = []
        released: list[int] = []
        position = wanted.first
        end = min(wanted.end, self._partition.last_stable_offset)
        looked, step = 0, None
        if position != self._position:
            self._steps = iter(())
        while position < end and looked < min(MAX_LOOKED, max(1, wanted.limit)):
            step = next(self._steps, None)
            if step is None:
                if looked:
                    break  # the next piece is read in the next look
                self._steps = _steps(self._partition, position, only_waiting)
                step = next(self._steps, None)
                if step is None:
                    break
            looked += 1
            record = step.record
            if step.released >= 0:
                released.append(step.released)
            first = step.upto if record is None else record.offset
            if record is not None:
                if accepts is not None and not accepts.matches(_as_input(record, self._partition)):
                    first = step.upto
                elif (message := describe(record, config, default_delay_ms)) is not None:
                    messages.append(message)
            if first > position:
                _skip(skipped, position, first)
            position = step.upto
        self._position = position
        return Seen(position, messages, skipped, released)


def _skip(skipped: list[Range], first: int, end: int) -> None:
    if skipped and skipped[-1][1] == first:
        first = skipped.pop()[0]
    skipped.append((first, end))


def _steps(partition: Partition, position: int, only_waiting: bool) -> Iterator[Step]:
    """Through one piece of the log, which holds at least one whole batch."""
    data = partition.read(position, READ_BYTES, partition.last_stable_offset)
    if isinstance(data, Rejected):
        return
    for at, header in scan(data):
        waiting = has_waiting(header)
        upto = position
        is_nothing = header.is_control or is_aborted(partition, header)
        if only_waiting and has_released(header) and not is_nothing:
            for record in iter_records(data, at, max_bytes=MAX_DECOMPRESSED_BYTES):
                origin = number(names.header(record.headers, names.DELAYED))
                if record.offset >= position and origin is not None:
                    upto = record.offset + 1
                    yield Step(upto, None, origin)
        elif not (is_nothing or (only_waiting and not waiting)):
            for record in iter_records(data, at, max_bytes=MAX_DECOMPRESSED_BYTES):
                if record.offset < position:
                    continue
                if waiting and is_waiting(record.headers, record.timestamp) != only_waiting:
                    continue
                upto = record.offset + 1
                yield Step(upto, record)
        if upto < header.next_offset:
            yield Step(header.next_offset, None)


def _as_input(record: Record, partition: Partition) -> FilterInput:
    tp = partition.tp
    return FilterInput(
        record.key, record.value, record.headers, record.timestamp, record.offset, tp.topic, tp.partition
    )


def describe(record: Record, config: QueueConfig, default_delay_ms: int = 0) -> Message | None:
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
        dedup_id = names.header(headers, names.DEDUP_ID) or b""
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
    return Message(record.offset, due, group, dedup_id, priority, expires_ms, record.timestamp)


def _had_a_life(headers: Headers) -> bool:
    """Moved to the dead letters or back: the same id again is no second send, and dropping it would lose the message."""
    return any(name in (names.DEAD_SOURCE, names.MOVED) for name, _ in headers)
