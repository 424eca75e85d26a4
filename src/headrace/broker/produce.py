"""Driver: taking one batch for one partition. Validates the header and CRC, checks the sequence, appends.

The batch is never opened, except where a topic's own promise needs it: a compacted topic refuses records without a
key, and a topic with its own compression stores batches in it.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.partition import Partition
from headrace.core.errors import ErrorKind
from headrace.core.limits import MAX_DECOMPRESSED_BYTES
from headrace.core.plan import Rejected
from headrace.log.results import Duplicate
from headrace.records.batch import BatchHeader, CorruptBatch, read_header
from headrace.records.compression import Codec
from headrace.records.rebuild import recompress
from headrace.records.validate import keyless_record_indexes, validate_produced

_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class Taken(NamedTuple):
    """What became of a batch. With acks=all, `commit_offset` must be committed before it is answered."""

    error: ErrorKind
    base_offset: int = -1
    log_append_time: int = -1
    commit_offset: int = -1
    message: str | None = None
    keyless: tuple[int, ...] = ()
    """Records refused one by one: their indexes."""


def take(
    partition: Partition, records: memoryview, *, acks: int, version: int, wall_ms: int, ticket: int = 0
) -> Taken:
    refusal = partition.refusal(acks)
    if refusal is not None:
        return Taken(refusal)
    room = partition.room
    if room is not None and room.is_low:
        return Taken(ErrorKind.KAFKA_STORAGE_ERROR, message=room.refusal)
    config = partition.config
    if config.is_log_append_time:
        earliest = latest = None
    else:
        earliest = wall_ms - config.message_timestamp_before_max_ms
        latest = wall_ms + config.message_timestamp_after_max_ms
    header = validate_produced(
        records,
        produce_version=version,
        max_message_bytes=config.max_message_bytes,
        segment_bytes=config.segment_bytes,
        earliest_timestamp=earliest,
        latest_timestamp=latest,
    )
    if isinstance(header, Rejected):
        return Taken(header.kind, message=header.detail)
    if config.is_compacted:
        refused = _refuse_keyless(records, header)
        if refused is not None:
            return refused
    if config.compression_type != "producer" and header.codec != _CODECS[config.compression_type]:
        try:
            codec = _CODECS[config.compression_type]
            records = memoryview(recompress(records, header, codec, max_bytes=MAX_DECOMPRESSED_BYTES))
        except CorruptBatch as problem:
            return Taken(ErrorKind.CORRUPT_MESSAGE, message=str(problem))
        header = read_header(records)
    result = partition.append(records, header, urgent=acks == -1, ticket=ticket)
    if isinstance(result, Rejected):
        return Taken(result.kind, message=result.detail or None)
    if isinstance(result, Duplicate):
        # R38: the original's own offset, and it is acknowledged only once that offset is committed.
        stamped = result.timestamp if config.is_log_append_time else -1
        return Taken(ErrorKind.NONE, result.base_offset, stamped, result.last_offset + 1)
    return Taken(ErrorKind.NONE, result.base_offset, result.log_append_time, result.last_offset + 1)


def _refuse_keyless(records: memoryview, header: BatchHeader) -> Taken | None:
    try:
        indexes = keyless_record_indexes(records, 0, header, max_bytes=MAX_DECOMPRESSED_BYTES)
    except CorruptBatch as problem:
        return Taken(ErrorKind.CORRUPT_MESSAGE, message=str(problem))
    if not indexes:
        return None
    return Taken(
        ErrorKind.INVALID_RECORD,
        message="a compacted topic takes no records without a key",
        keyless=tuple(indexes),
    )
