"""Codec: is this what a producer may send? Decided from the header and the CRC, without opening the batch (X12).

`validate_produced` answers with the header or with the error a client expects (kafka.md 5.1). It is the hot path: one
unpack, comparisons on locals, one CRC. What is inside is looked at by walk.py, and by `keyless_record_indexes` where a
topic is compacted.
"""

from __future__ import annotations

import struct

from fastcrc.crc32 import iscsi as crc32c

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.core.ports import Buffer
from headrace.core.tuples import new_tuple
from headrace.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC_POSITION,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from headrace.records.compression import Codec
from headrace.records.read import iter_spans

_unpack_header = struct.Struct(">qiibIhiqqqhii").unpack_from
_ZSTD_SINCE_PRODUCE = 7
_BROKER_OWNED_BITS = LOG_APPEND_TIME_BIT | CONTROL_BIT | DELETE_HORIZON_BIT
_NO_TIMESTAMP = -1


def validate_produced(
    buffer: Buffer,
    produce_version: int,
    max_message_bytes: int,
    segment_bytes: int | None = None,
    earliest_timestamp: int | None = None,
    latest_timestamp: int | None = None,
) -> BatchHeader | Rejected:
    """The header of the one batch that fills `buffer`, or why it is refused.

    The timestamp limits are for CreateTime topics and are absolute (the wall clock minus message.timestamp.before.max.ms,
    plus ...after.max.ms): the header's base and max timestamps are held against them.
    """
    size = len(buffer)
    if size < HEADER_BYTES:
        return _refuse_fragment(buffer)
    fields = _unpack_header(buffer, 0)
    (
        base_offset, length, _leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, record_count,
    ) = fields  # fmt: skip
    if magic != MAGIC_V2:
        return Rejected(ErrorKind.INVALID_RECORD, f"message format {magic}; only version 2 is accepted")
    if length != size - LENGTH_PREFIX_BYTES:
        return _refuse_length(length + LENGTH_PREFIX_BYTES, size)
    if size > max_message_bytes:
        return Rejected(
            ErrorKind.MESSAGE_TOO_LARGE, f"a batch of {size} bytes; the topic takes {max_message_bytes}"
        )
    if segment_bytes is not None and size > segment_bytes:
        return Rejected(
            ErrorKind.RECORD_LIST_TOO_LARGE, f"a batch of {size} bytes; a segment holds {segment_bytes}"
        )
    # S1: before anything inside the CRC is believed.
    if crc32c(memoryview(buffer)[CRC_START:]) != crc:
        return Rejected(ErrorKind.CORRUPT_MESSAGE, "the CRC does not match")
    if base_offset != 0:
        return Rejected(ErrorKind.INVALID_RECORD, f"base offset {base_offset}; producers send 0")
    if record_count <= 0 or last_offset_delta != record_count - 1:
        detail = f"{record_count} records with a last offset delta of {last_offset_delta}"
        return Rejected(ErrorKind.INVALID_RECORD, detail)
    if attributes & _BROKER_OWNED_BITS:
        return _refuse_attributes(attributes)
    codec = attributes & CODEC_MASK
    if codec:
        if codec > Codec.ZSTD or (codec == Codec.ZSTD and produce_version < _ZSTD_SINCE_PRODUCE):
            detail = f"codec {codec} in a produce request of version {produce_version}"
            return Rejected(ErrorKind.UNSUPPORTED_COMPRESSION_TYPE, detail)
    elif record_count * MIN_RECORD_BYTES > size - HEADER_BYTES:
        # An unopened lie here would burn offsets that no record ever fills.
        return Rejected(
            ErrorKind.INVALID_RECORD, f"{record_count} records can not fit into {size - HEADER_BYTES} bytes"
        )
    if producer_id >= 0:
        if base_sequence < 0 or producer_epoch < 0:
            detail = f"producer id {producer_id} with epoch {producer_epoch} and sequence {base_sequence}"
            return Rejected(ErrorKind.INVALID_RECORD, detail)
    elif attributes & TRANSACTIONAL_BIT:
        return Rejected(ErrorKind.INVALID_RECORD, "a transactional batch without a producer id")
    if (latest_timestamp is not None and not base_timestamp <= max_timestamp <= latest_timestamp) or (
        earliest_timestamp is not None and not earliest_timestamp <= base_timestamp <= max_timestamp
    ):
        problem = _timestamp_problem((base_timestamp, max_timestamp), earliest_timestamp, latest_timestamp)
        if problem is not None:
            return problem
    return new_tuple(BatchHeader, fields)


def _timestamp_problem(
    timestamps: tuple[int, int], earliest: int | None, latest: int | None
) -> Rejected | None:
    for timestamp in timestamps:
        too_old = earliest is not None and timestamp < earliest
        if timestamp != _NO_TIMESTAMP and (too_old or (latest is not None and timestamp > latest)):
            return Rejected(
                ErrorKind.INVALID_TIMESTAMP, f"timestamp {timestamp} is outside of {earliest}..{latest}"
            )
    return None


def _refuse_fragment(buffer: Buffer) -> Rejected:
    if len(buffer) == 0:
        return Rejected(ErrorKind.INVALID_RECORD, "no batch at all")
    # Formats 0 and 1 keep their magic at the same place and may be shorter than a v2 header.
    if len(buffer) > MAGIC_POSITION and buffer[MAGIC_POSITION] in (0, 1):
        return Rejected(ErrorKind.INVALID_RECORD, "an old message format; only version 2 is accepted")
    return Rejected(ErrorKind.CORRUPT_MESSAGE, f"{len(buffer)} bytes are too few for a batch")


def _refuse_length(claimed: int, size: int) -> Rejected:
    if HEADER_BYTES <= claimed < size:
        return Rejected(ErrorKind.INVALID_RECORD, "more than one batch for one partition")
    return Rejected(ErrorKind.CORRUPT_MESSAGE, f"a batch that claims {claimed} bytes in {size}")


def _refuse_attributes(attributes: int) -> Rejected:
    if attributes & CONTROL_BIT:
        return Rejected(ErrorKind.INVALID_RECORD, "control batches are written by brokers only")
    if attributes & DELETE_HORIZON_BIT:
        return Rejected(ErrorKind.INVALID_RECORD, "delete horizons are set by brokers only")
    return Rejected(ErrorKind.INVALID_TIMESTAMP, "LogAppendTime is set by brokers only")


def keyless_record_indexes(body: bytes, header: BatchHeader) -> list[int]:
    """Which records of a plain body have no key: a compacted topic refuses those one by one."""
    return [index for index, span in enumerate(iter_spans(body, header)) if span.key_length < 0]
