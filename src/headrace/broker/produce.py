"""Driver: taking one batch for one partition. Validates the header and CRC, looks at the records, checks the sequence, appends."""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.batch_opening import OpenedBatch, open_batch
from headrace.broker.partition import Partition
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.core.tuples import new_tuple
from headrace.log.results import Duplicate
from headrace.records.batch import (
    ATTRIBUTES,
    CODEC_MASK,
    HEADER_BYTES,
    RECORD_COUNT,
    BatchHeader,
    read_header,
)
from headrace.records.validate import validate_produced
from headrace.records.walk import is_regular

_KEYLESS = "a compacted topic takes no records without a key"
_STRANGERS = "the schema registry does not have the schemas of the records for this topic"
_FLAWED = "the records of the batch can't be read: %s"


def _is_known_good(records: memoryview, header: BatchHeader, trusted: bool) -> bool:
    """The short way for what most topics get: nothing is made of the batch when its records are all right."""
    return trusted or (
        not header[ATTRIBUTES] & CODEC_MASK and is_regular(records[HEADER_BYTES:], header[RECORD_COUNT])
    )


class TakenBatch(NamedTuple):
    """What became of a batch. With acks=all, `commit_offset` must be committed before it is answered."""

    error: ErrorKind
    base_offset: int = -1
    log_append_time: int = -1
    commit_offset: int = -1
    message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    """Records refused one by one: their indexes, and why."""


def take(
    partition: Partition,
    records: memoryview,
    *,
    acks: int,
    version: int,
    wall_ms: int,
    ticket: int = 0,
    opened: OpenedBatch | None = None,
    trusted: bool = False,
) -> TakenBatch:
    """`opened`: what has been found out already about a batch that must be opened (X12). `trusted`: the batch is our own."""
    refusal = partition.refusal(acks)
    if refusal is not None:
        return TakenBatch(refusal)
    room = partition.room
    if room is not None and room.is_low:
        return TakenBatch(ErrorKind.KAFKA_STORAGE_ERROR, message=room.refusal)
    config = partition.config
    if config.message_timestamp_type == "LogAppendTime":
        earliest = latest = None
    else:
        earliest = wall_ms - config.message_timestamp_before_max_ms
        latest = wall_ms + config.message_timestamp_after_max_ms
    header = validate_produced(
        records, version, config.max_message_bytes, config.segment_bytes, earliest, latest
    )
    if isinstance(header, Rejected):
        return TakenBatch(header.kind, message=header.detail)
    if (
        opened is None
        and partition.looks_inside
        and (partition.opens_batches or not _is_known_good(records, header, trusted))
    ):
        ids = (
            partition.schema_ids() if config.validates_schemas and partition.schema_ids is not None else None
        )
        opened = open_batch(records, config, trusted=trusted, ids=ids)
    if opened is not None:
        if opened.flaw is not None:
            # Its CRC holds, so this is what the client has made: sending it again is of no use.
            index, detail = opened.flaw
            return TakenBatch(
                ErrorKind.INVALID_RECORD, message=_FLAWED % detail, record_errors=((index, detail),)
            )
        if opened.keyless:
            errors = tuple((index, "the record has no key") for index in opened.keyless)
            return TakenBatch(ErrorKind.INVALID_RECORD, message=_KEYLESS, record_errors=errors)
        if opened.strangers:
            return TakenBatch(ErrorKind.INVALID_RECORD, message=_STRANGERS, record_errors=opened.strangers)
        if opened.records is not records:
            records, header = opened.records, read_header(opened.records)
    result = partition.append(records, header, urgent=acks == -1, ticket=ticket, wall_ms=wall_ms)
    if isinstance(result, Rejected):
        return TakenBatch(result.kind, message=result.detail or None)
    if isinstance(result, Duplicate):
        # R38: the original's own offset, and it is acknowledged only once that offset is committed.
        stamped = result.timestamp if config.is_log_append_time else -1
        return TakenBatch(ErrorKind.NONE, result.base_offset, stamped, result.last_offset + 1)
    base_offset, last_offset, log_append_time = result
    taken: TakenBatch = new_tuple(
        TakenBatch, (ErrorKind.NONE, base_offset, log_append_time, last_offset + 1, None, ())
    )
    return taken
