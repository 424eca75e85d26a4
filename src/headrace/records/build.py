"""Codec: records into a batch, for what the broker itself writes: journals, markers, queue messages, compacted logs.

Invariant: what `build_batch` makes passes `validate_produced` (given base offset 0) and reads back as the same records.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from headrace.core.ports import Buffer
from headrace.records.batch import (
    ABORT_MARKER,
    COMMIT_MARKER,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    pack_header,
    seal,
)
from headrace.records.compression import compress
from headrace.records.record import Headers as Headers
from headrace.records.record import Record as Record
from headrace.records.varint import append_varint

_NO_TIMESTAMP = -1


def build_batch(
    records: Sequence[Record],
    *,
    wall_ms: int,
    codec: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    log_append_time: int | None = None,
) -> bytes:
    """One batch. A record without a timestamp gets `wall_ms`; one without an offset follows the record before it."""
    if not records:
        raise ValueError("a batch holds at least one record")
    timestamps = [wall_ms if record.timestamp == _NO_TIMESTAMP else record.timestamp for record in records]
    body = bytearray()
    delta = -1
    for record, timestamp in zip(records, timestamps, strict=True):
        following = delta + 1 if record.offset < 0 else record.offset - base_offset
        if following <= delta:
            raise ValueError(f"offset {record.offset} does not follow {base_offset + delta}")
        delta = following
        append_record(body, record, timestamp - timestamps[0], delta)
    attributes = codec | (TRANSACTIONAL_BIT if transactional else 0)
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME_BIT
    header = BatchHeader(
        base_offset, 0, leader_epoch, MAGIC_V2, 0, attributes, delta,
        timestamps[0], max(timestamps) if log_append_time is None else log_append_time,
        producer_id, producer_epoch, base_sequence, len(records),
    )  # fmt: skip
    return bytes(assemble(header, compress(codec, body) if codec else body))


def build_control_batch(
    commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, wall_ms: int
) -> bytes:
    """The marker that ends a transaction on one partition (kafka.md 5.2); it takes one offset."""
    kind = COMMIT_MARKER if commit else ABORT_MARKER
    body = bytearray()
    append_record(body, Record(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch)), 0, 0)
    header = BatchHeader(
        0, 0, -1, MAGIC_V2, 0, TRANSACTIONAL_BIT | CONTROL_BIT, 0, wall_ms, wall_ms,
        producer_id, producer_epoch, NO_SEQUENCE, 1,
    )  # fmt: skip
    return bytes(assemble(header, body))


def assemble(header: BatchHeader, body: Buffer) -> bytearray:
    """Header plus (already compressed) body, with length and CRC filled in."""
    size = HEADER_BYTES + len(body)
    batch = bytearray(size)
    batch[HEADER_BYTES:] = body
    pack_header(batch, 0, header._replace(length=size - LENGTH_PREFIX_BYTES))
    seal(batch, 0, size)
    return batch


def append_record(body: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    key, value, headers = record[0], record[1], record[2]
    if (
        0 <= timestamp_delta < 64 and 0 <= offset_delta < 64 and len(headers) < 64
        and (key is None or len(key) < 64) and value is not None and len(value) < 4096
    ):  # fmt: skip
        # As most of what the broker writes is: every length but that of the value is one byte.
        size = len(value)
        fields = bytearray(
            (0, timestamp_delta << 1, offset_delta << 1, 1)
            if key is None
            else (0, timestamp_delta << 1, offset_delta << 1, len(key) << 1, *key)
        )
        if size < 64:
            fields.append(size << 1)
        else:
            fields += bytes(((size << 1 & 0x7F) | 0x80, size >> 6))
        fields += value
        fields.append(len(headers) << 1)
    else:
        fields = bytearray(1)  # attributes: unused in v2
        append_varint(fields, timestamp_delta)
        append_varint(fields, offset_delta)
        _append_nullable(fields, key)
        _append_nullable(fields, value)
        append_varint(fields, len(headers))
    for name, content in headers:
        _append_nullable(fields, name.encode("utf-8", "surrogateescape"))
        _append_nullable(fields, content)
    size = len(fields)
    if size < 64:
        body.append(size << 1)
    elif size < 8192:
        body += bytes(((size << 1 & 0x7F) | 0x80, size >> 6))
    else:
        append_varint(body, size)
    body += fields


def _append_nullable(fields: bytearray, data: bytes | None) -> None:
    if data is None:
        fields.append(1)  # -1 in zig-zag
        return
    if len(data) < 64:
        fields.append(len(data) << 1)
    else:
        append_varint(fields, len(data))
    fields += data
