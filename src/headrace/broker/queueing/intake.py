"""Driver: what the log says about new messages, in the words of the engine (queues.commands.Message)."""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.queueing import names
from headrace.broker.queueing.delayed import due_ms, has_waiting, is_waiting, number
from headrace.broker.queueing.payloads import is_aborted
from headrace.core.limits import KIB, MAX_DECOMPRESSED_BYTES
from headrace.core.plan import Rejected
from headrace.queues.commands import Message, Wanted
from headrace.queues.config import DEFAULT_PRIORITY, MAX_PRIORITY, QueueConfig
from headrace.queues.ranges import Range
from headrace.records.batch import scan
from headrace.records.build import Headers, Record
from headrace.records.filters import Filter, FilterInput
from headrace.records.read import read_records

READ_BYTES = 256 * KIB
"""Of one look: opening records costs time, and others wait for their turn of the loop."""


class Seen(NamedTuple):
    """Everything below `indexed_to` has been looked at."""

    indexed_to: int
    messages: list[Message]
    skipped: list[Range]


def look(
    partition: Partition,
    wanted: Wanted,
    config: QueueConfig,
    accepts: Filter | None,
    default_delay_ms: int,
    *,
    only_waiting: bool = False,
) -> Seen:
    """Read on from where the engine stopped, one bounded piece: what is special, and what is none of the queue's
    business. The caller looks again while there is more. Records that wait in the log (delayed.py) are for the queue of
    those alone, `only_waiting`; the others get the copy that is written when it is due."""
    messages: list[Message] = []
    skipped: list[Range] = []
    position = wanted.first
    end = min(wanted.end, partition.last_stable_offset)
    if position < end and len(messages) < wanted.limit:
        data = partition.read(position, READ_BYTES, partition.last_stable_offset)
        if isinstance(data, Rejected):
            return Seen(position, messages, skipped)
        for at, header in scan(data):
            first = max(position, header.base_offset)
            if first > position:
                skipped.append((position, first))
            waiting = has_waiting(header)
            if header.is_control or is_aborted(partition, header) or (only_waiting and not waiting):
                skipped.append((first, header.next_offset))
            else:
                records = read_records(data, at, max_bytes=MAX_DECOMPRESSED_BYTES)
                if waiting:
                    records = [
                        record
                        for record in records
                        if is_waiting(record.headers, record.timestamp) == only_waiting
                    ]
                _take(
                    records,
                    first,
                    header.next_offset,
                    config,
                    accepts,
                    default_delay_ms,
                    messages,
                    skipped,
                    partition,
                )
            position = header.next_offset
            if position >= end:
                break
    return Seen(position, messages, skipped)


def _take(
    records: list[Record],
    first: int,
    end: int,
    config: QueueConfig,
    accepts: Filter | None,
    default_delay_ms: int,
    messages: list[Message],
    skipped: list[Range],
    partition: Partition,
) -> None:
    expected = first
    for record in records:
        if record.offset < first:
            continue
        if record.offset > expected:
            skipped.append((expected, record.offset))
        expected = record.offset + 1
        if accepts is not None and not accepts.matches(_as_input(record, partition)):
            skipped.append((record.offset, record.offset + 1))
            continue
        message = describe(record, config, default_delay_ms)
        if message is not None:
            messages.append(message)
    if expected < end:
        skipped.append((expected, end))


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
