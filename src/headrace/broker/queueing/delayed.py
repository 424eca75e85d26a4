"""Codec: records that wait in the log of a topic with `headrace.delay.enabled` (Q7).

Such a record lies in the log like any other, so it is as durable, as replicated and as transactional as the rest of its
batch. The batch carries a mark in its attributes; readers get it without the records that wait, as after a compaction. When
its time has come a record is written again, without its delay headers, and that copy is what readers see. The copy says which
record it is of, in a batch with a mark of its own: so the log itself knows what was let go, whatever else was lost.

Invariant: a record of a batch marked as waiting is hidden exactly when its due time is after its timestamp; no other is.
"""

from __future__ import annotations

from headrace.broker.queueing import names
from headrace.core.limits import MAX_DECOMPRESSED_BYTES
from headrace.core.ports import Buffer
from headrace.queues.levels import level_by_name
from headrace.records.batch import HEADER_BYTES, BatchHeader, read_header, scan
from headrace.records.build import Headers, assemble
from headrace.records.read import iter_spans, plain_body, read_headers
from headrace.records.rebuild import rebuild_batch

WAITING_BIT = 0x4000
"""Of a batch's attributes: some of its records wait. Kafka leaves the upper bits alone; readers never see this one."""

RELEASED_BIT = 0x2000
"""The records of this batch are copies of such that waited. Readers do not see this one either."""

_OURS = WAITING_BIT | RELEASED_BIT
_TRACE = b"headrace-del"
"""All names of delay headers begin so: a batch without these bytes has none."""


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


def number(text: bytes | None) -> int | None:
    if text is None or len(text) > 20:
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


def mark_waiting(batch: memoryview, header: BatchHeader) -> memoryview:
    """The batch with the mark, when a record of it has to wait; else as it is, without marks that are not its sender's."""
    if header.attributes & _OURS:
        header = header._replace(attributes=header.attributes & ~_OURS)
        batch = memoryview(assemble(header, batch[HEADER_BYTES : header.size]))
    body = plain_body(batch, 0, header, max_bytes=MAX_DECOMPRESSED_BYTES)
    if _TRACE not in body:
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
    body = plain_body(batch, 0, header, max_bytes=MAX_DECOMPRESSED_BYTES)
    appended_ms = header.max_timestamp if header.is_log_append_time else None
    kept = []
    for span in iter_spans(body, header):
        timestamp = header.base_timestamp + span.timestamp_delta if appended_ms is None else appended_ms
        if not is_waiting(read_headers(body, span.headers_start, span.end), timestamp):
            kept.append(span)
    return rebuild_batch(plain, body, kept)
