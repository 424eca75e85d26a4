"""Codec: a batch written again: some of its records left out (compaction), or with another codec.

Invariant: base offset, last offset, producer, sequences and codec stay, so that nothing a reader or the producer table
relies on moves. A batch may lose all its records and still stand for its offsets and its producer's last sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.records.batch import CODEC_MASK, DELETE_HORIZON_BIT, BatchHeader
from headrace.records.build import assemble
from headrace.records.compression import compress
from headrace.records.read import RecordSpan
from headrace.records.varint import append_varint, read_varint, read_varlong


def rebuild_batch(
    header: BatchHeader, body: bytes, kept: Sequence[RecordSpan], *, delete_horizon_ms: int | None = None
) -> bytes:
    """The batch of `header` with the records `kept` of its plain `body` (see read.plain_body and read.iter_spans).

    `delete_horizon_ms` says when its tombstones (or its marker) may go. Kafka keeps it in the place of the base
    timestamp, so setting it moves every timestamp delta.
    """
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    shift = header.base_timestamp - base_timestamp
    plain = b"".join(
        [_moved_record(body, span, shift) if shift else body[span.start : span.end] for span in kept]
    )
    max_timestamp = header.max_timestamp
    if kept and not header.is_log_append_time:
        max_timestamp = header.base_timestamp + max(span.timestamp_delta for span in kept)
    rebuilt = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(kept),
    )
    return bytes(assemble(rebuilt, compress(header.codec, plain) if kept and header.codec else plain))


def recompress(plain: bytes, header: BatchHeader, codec: int, level: int | None = None) -> bytearray:
    """The batch of `header` with the records of its plain body compressed by `codec`, ready to be stamped."""
    attributes = header.attributes & ~CODEC_MASK | codec
    return assemble(header._replace(attributes=attributes), compress(codec, plain, level) if codec else plain)


def _moved_record(body: bytes, span: RecordSpan, shift: int) -> bytes:
    """The same record with its timestamp delta moved by `shift`."""
    _, attributes_position = read_varint(body, span.start)
    _, after_timestamp = read_varlong(body, attributes_position + 1)
    fields = bytearray(body[attributes_position : attributes_position + 1])
    append_varint(fields, span.timestamp_delta + shift)
    fields += body[after_timestamp : span.end]
    record = bytearray()
    append_varint(record, len(fields))
    return bytes(record + fields)
