"""Codec: opening a batch: its records as Python values. Not for the produce path (walk.py looks there) or the fetch path, which never opens one.

    record:  length varint | attributes int8 | timestampDelta varlong | offsetDelta varint
             keyLength varint (-1: null) key | valueLength varint value | headerCount varint
             then per header: keyLength varint, key, valueLength varint (-1: null), value

Invariant: hostile bytes raise CorruptBatch and nothing else. Every count and length is checked against the bytes that
are left before anything is allocated (X10), and inflating is capped by the caller (X11).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from headrace.core.limits import MAX_DECOMPRESSED_BYTES
from headrace.core.ports import Buffer
from headrace.core.tuples import new_tuple
from headrace.records.batch import (
    ABORT_MARKER,
    COMMIT_MARKER,
    HEADER_BYTES,
    MIN_RECORD_BYTES,
    BatchHeader,
    CorruptBatch,
    read_header,
)
from headrace.records.build import Headers, Record
from headrace.records.compression import inflate
from headrace.records.varint import read_varint, read_varlong

_CONTROL_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_MIN_HEADER_BYTES = 2


class RecordSpan(NamedTuple):
    """Where one record lies in the plain body: `body[start:end]` is the whole record with its length.

    For those who filter or measure records without building each of them (compaction, keyless checks).
    """

    start: int
    end: int
    offset_delta: int
    timestamp_delta: int
    key_start: int
    key_length: int
    """-1: the key is null."""
    value_start: int
    value_length: int
    """-1: the value is null (a tombstone)."""
    headers_start: int


class Marker(NamedTuple):
    """The end of a transaction on this partition."""

    commit: bool
    coordinator_epoch: int


def read_records(
    buffer: Buffer, position: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> list[Record]:
    """Every record of the batch at `position`, control records included; `max_bytes` caps the plain body."""
    return list(iter_records(buffer, position, max_bytes=max_bytes))


def iter_records(
    buffer: Buffer, position: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    header = read_header(buffer, position)
    body = plain_body(buffer, position, header, max_bytes=max_bytes)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    for span in iter_spans(body, header):
        key_start, key_length, value_start, value_length, headers_start = span[4:]
        yield Record(
            None if key_length < 0 else body[key_start : key_start + key_length],
            None if value_length < 0 else body[value_start : value_start + value_length],
            read_headers(body, headers_start, span.end) if span.end - headers_start > 1 else (),
            base_timestamp + span.timestamp_delta if append_time is None else append_time,
            base_offset + span.offset_delta,
        )


def plain_body(buffer: Buffer, position: int, header: BatchHeader, *, max_bytes: int) -> bytes:
    """The records of the batch as plain bytes, inflated when they are compressed."""
    return bytes(plain_view(buffer, position, header, max_bytes=max_bytes))


def plain_view(buffer: Buffer, position: int, header: BatchHeader, *, max_bytes: int) -> memoryview:
    """Like `plain_body`, without the last copy: what is not compressed is seen where it lies."""
    end = position + header.size
    if end > len(buffer):
        raise CorruptBatch(f"a batch of {header.size} bytes with {len(buffer) - position} left")
    if header.record_count == 0:
        return memoryview(b"")  # compaction leaves empty batches, whose codec bits then stand for nothing
    return inflate(header.codec, memoryview(buffer)[position + HEADER_BYTES : end], max_bytes)


def iter_spans(body: bytes, header: BatchHeader) -> Iterator[RecordSpan]:
    """Walk a plain body. Offsets rise strictly and stay within the batch; the last byte belongs to the last record."""
    count, last_delta = header.record_count, header.last_offset_delta
    if count < 0 or count * MIN_RECORD_BYTES > len(body):
        raise CorruptBatch(f"{count} records can not fit into {len(body)} bytes")
    position, previous_delta = 0, -1
    for _ in range(count):
        span = read_span(body, position)
        if not previous_delta < span.offset_delta <= last_delta:
            raise CorruptBatch(
                f"offset delta {span.offset_delta} after {previous_delta} in a batch of {last_delta + 1}"
            )
        previous_delta, position = span.offset_delta, span.end
        yield span
    if position != len(body):
        raise CorruptBatch(f"{len(body) - position} bytes after the last record")


def read_span(body: bytes, position: int) -> RecordSpan:
    """One record, with its header count checked but its headers unread."""
    try:
        length, after_length = read_varint(body, position)
        end = after_length + length
        if length < MIN_RECORD_BYTES - 1 or end > len(body):
            raise CorruptBatch(f"a record of {length} bytes with {len(body) - after_length} left")
        timestamp_delta, cursor = read_varlong(body, after_length + 1)
        offset_delta, cursor = read_varint(body, cursor)
        key_length, key_start = read_varint(body, cursor)
        cursor = key_start + key_length if key_length > 0 else key_start
        value_length, value_start = read_varint(body, cursor)
        headers_start = value_start + value_length if value_length > 0 else value_start
        header_count, cursor = read_varint(body, headers_start)
    except IndexError:
        raise CorruptBatch("a record is cut short") from None
    if key_length < -1 or value_length < -1 or cursor > end:
        raise CorruptBatch("the fields of a record reach beyond its end")
    if (
        header_count < 0
        or header_count * _MIN_HEADER_BYTES > end - cursor
        or (header_count == 0 and cursor != end)
    ):
        raise CorruptBatch(f"{header_count} headers with {end - cursor} bytes left")
    return new_tuple(
        RecordSpan,
        (
            position,
            end,
            offset_delta,
            timestamp_delta,
            key_start,
            key_length,
            value_start,
            value_length,
            headers_start,
        ),
    )


def read_headers(body: bytes, position: int, end: int) -> Headers:
    """The headers of a record: `position` is RecordSpan.headers_start, `end` the end of the record."""
    headers = []
    try:
        count, position = read_varint(body, position)
        for _ in range(count):
            key_length, position = read_varint(body, position)
            if not 0 <= key_length <= end - position:
                raise CorruptBatch(f"a header key of {key_length} bytes with {end - position} left")
            key = body[position : position + key_length]
            value_length, position = read_varint(body, position + key_length)
            if not -1 <= value_length <= end - position:
                raise CorruptBatch(f"a header value of {value_length} bytes with {end - position} left")
            value = None if value_length < 0 else body[position : position + value_length]
            position += max(value_length, 0)
            # Some clients put raw bytes into header keys; surrogates carry them through unharmed.
            headers.append((key.decode("utf-8", "surrogateescape"), value))
    except IndexError:
        raise CorruptBatch("headers are cut short") from None
    if position != end:
        raise CorruptBatch("the headers of a record do not end where the record does")
    return tuple(headers)


def read_control(buffer: Buffer, position: int = 0) -> Marker | None:
    """The marker in a control batch (kafka.md 5.2); None for a kind of control record that means nothing here."""
    header = read_header(buffer, position)
    if not header.is_control:
        raise CorruptBatch("not a control batch")
    if header.codec:
        raise CorruptBatch("a compressed control batch")
    records = read_records(buffer, position, max_bytes=header.size)
    if len(records) != 1 or records[0].key is None:
        raise CorruptBatch("a control batch holds one record with a key")
    try:
        _version, kind = _CONTROL_KEY.unpack_from(records[0].key)
        if kind not in (ABORT_MARKER, COMMIT_MARKER):
            return None
        _version, coordinator_epoch = _MARKER_VALUE.unpack_from(records[0].value or b"")
    except struct.error:
        raise CorruptBatch("a control record is cut short") from None
    return Marker(kind == COMMIT_MARKER, coordinator_epoch)
