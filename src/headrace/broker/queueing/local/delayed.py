"""Codec: records that wait in the log of a topic with `headrace.delay.enabled` (Q7).

Such a record lies in the log like any other, so it is as durable, as replicated and as transactional as the rest of its
batch. The batch carries a mark in its attributes; readers get it without the records that wait, as after a compaction. When
its time has come a record is written again, without its delay headers, and that copy is what readers see. The copy says which
record it is of, in a batch with a mark of its own: so the log itself knows what was let go, whatever else was lost.

Invariant: a record of a batch marked as waiting is hidden exactly when its due time is after its timestamp; no other is.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.queueing import names
from headrace.core.limits import MAX_DECOMPRESSED_BYTES
from headrace.core.ports import Buffer
from headrace.core.tuples import new_tuple
from headrace.queues.levels import level_by_name
from headrace.records.batch import HEADER_BYTES, BatchHeader, CorruptBatch, read_header, scan
from headrace.records.build import Headers, assemble
from headrace.records.opened import OpenBatch
from headrace.records.read import iter_spans, plain_body, read_headers
from headrace.records.rebuild import rebuild_batch
from headrace.records.varint import read_varint, read_varlong

WAITING_BIT = 0x4000
"""Of a batch's attributes: some of its records wait. Kafka leaves the upper bits alone; readers never see this one."""

RELEASED_BIT = 0x2000
"""The records of this batch are copies of such that waited. Readers do not see this one either."""

_OURS = WAITING_BIT | RELEASED_BIT
TRACE = b"headrace-del"
"""All names of delay headers begin so: a batch without these bytes has none."""

_MAX_DIGITS = 20
_ONLY_AT = b"\x02\x26headrace-deliver-at"
_ONLY_AFTER = b"\x02\x22headrace-delay-ms"
"""How the headers of a record begin that has one, this one: their number, the length of the name, the name."""


def due_ms(headers: Headers, timestamp: int, default_delay_ms: int = 0) -> int:
    """When a record is due, wall clock; 0 when it does not say."""
    at = number(names.header(headers, names.DELIVER_AT))
    if at is not None:
        return max(0, at)
    delay = number(names.header(headers, names.DELAY_MS))
    if delay is None:
        level = names.header(headers, names.DELAY_LEVEL)
        delay = level_by_name(level.decode("ascii", "replace")) if level is not None else None
    if delay is None:
        delay = default_delay_ms
    return timestamp + delay if delay > 0 else 0


class Due(NamedTuple):
    offset: int
    due_ms: int
    timestamp_ms: int


def read_dues(
    batch: OpenBatch, first: int, end: int, default_delay_ms: int = 0
) -> tuple[list[Due], list[int]]:
    """Of a dense batch's records `first` to `end`: those that wait, and the places of those that take a closer look.

    For a long backlog: a record that has no header but its due time, or none at all, is not made into a value; its lengths
    are hopped over. Raises CorruptBatch.
    """
    body, starts, header = batch.body, batch.starts, batch.header
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    appended_ms = header.max_timestamp if header.is_log_append_time else None
    found: list[Due] = []
    unclear: list[int] = []
    last = len(starts) - 1
    for place in range(first, end):
        at = starts[place]
        stop = len(body) if place == last else starts[place + 1]
        due: int | None = None
        try:
            at += (
                2 if body[at] < 0x80 else read_varint(body, at)[1] - at + 1
            )  # its length, and the attributes
            delta_ms, at = read_varlong(body, at)
            timestamp = base_timestamp + delta_ms if appended_ms is None else appended_ms
            at += (
                1 if body[at] < 0x80 else 2 if body[at + 1] < 0x80 else 3
            )  # the offset delta, which is `place`
            size = body[at]
            if size == 1 or not size:  # null or empty, as most keys are
                at += 1
            else:
                size, at = read_varint(body, at)
                at += size
            size = body[at]
            if size < 0x80 and not size & 1:
                at += 1 + (size >> 1)
            else:
                size, at = read_varint(body, at)
                if size > 0:
                    at += size
            if at + 1 == stop and not body[at]:
                due = timestamp + default_delay_ms if default_delay_ms > 0 else 0
            elif body.startswith(_ONLY_AT, at):
                due = _single(body, at + len(_ONLY_AT), stop)
            elif body.startswith(_ONLY_AFTER, at):
                due = _single(body, at + len(_ONLY_AFTER), stop)
                due = None if due is None else timestamp + due
        except IndexError:
            raise CorruptBatch("a record is cut short") from None
        if due is None:
            unclear.append(place)
        elif due:
            found.append(new_tuple(Due, (base_offset + place, due, timestamp)))
    return found, unclear


def _single(body: bytes, at: int, stop: int) -> int | None:
    """The number that the one header of a record has as its value; None when it takes a closer look."""
    size = body[at]
    if size > 2 * _MAX_DIGITS or size & 1 or at + 1 + (size >> 1) != stop:
        return None
    digits = body[at + 1 : stop]
    return (int(digits) or None) if digits.isdigit() else None


def number(text: bytes | None) -> int | None:
    if text is None or len(text) > _MAX_DIGITS:
        return None
    try:
        return int(text)
    except ValueError:
        return None


def has_waiting(header: BatchHeader) -> bool:
    return header.attributes & WAITING_BIT != 0


def has_released(header: BatchHeader) -> bool:
    return header.attributes & RELEASED_BIT != 0


def mark_released(batch: bytes) -> memoryview:
    header = read_header(batch)
    marked = header._replace(attributes=header.attributes | RELEASED_BIT)
    return memoryview(assemble(marked, memoryview(batch)[HEADER_BYTES : header.size]))


def is_waiting(headers: Headers, timestamp: int) -> bool:
    """In a marked batch."""
    return due_ms(headers, timestamp) > timestamp


def mark_waiting(batch: memoryview, header: BatchHeader, body: bytes) -> memoryview:
    """The batch with the mark, when a record of it has to wait; else as it is, without marks that are not its sender's.

    `body`: its records as plain bytes.
    """
    if header.attributes & _OURS:
        header = header._replace(attributes=header.attributes & ~_OURS)
        batch = memoryview(assemble(header, batch[HEADER_BYTES : header.size]))
    if TRACE not in body:
        return batch
    for span in iter_spans(body, header):
        timestamp = header.base_timestamp + span.timestamp_delta
        if is_waiting(read_headers(body, span.headers_start, span.end), timestamp):
            marked = header._replace(attributes=header.attributes | WAITING_BIT)
            return memoryview(assemble(marked, batch[HEADER_BYTES : header.size]))
    return batch


def without_waiting(data: Buffer) -> Buffer:
    """Whole batches as readers see them; the same bytes when nothing waits."""
    view = memoryview(data)
    pieces: list[Buffer] = []
    kept_from = end = 0
    for at, header in scan(data):
        end = at + header.size
        if header.attributes & _OURS:
            pieces += (view[kept_from:at], _shown(view[at:end], header))
            kept_from = end
    if not pieces:
        return data
    return b"".join((*pieces, view[kept_from:end]))


def _shown(batch: memoryview, header: BatchHeader) -> Buffer:
    plain = header._replace(attributes=header.attributes & ~_OURS)
    if not has_waiting(header):
        return assemble(plain, batch[HEADER_BYTES:])
    appended_ms = header.max_timestamp if header.is_log_append_time else None
    kept = []
    try:
        body = plain_body(batch, 0, header, max_bytes=MAX_DECOMPRESSED_BYTES)
        for span in iter_spans(body, header):
            timestamp = header.base_timestamp + span.timestamp_delta if appended_ms is None else appended_ms
            if not is_waiting(read_headers(body, span.headers_start, span.end), timestamp):
                kept.append(span)
    except CorruptBatch:
        return assemble(plain, batch[HEADER_BYTES:])  # stored unseen: its readers find out themselves
    return rebuild_batch(plain, body, kept)
