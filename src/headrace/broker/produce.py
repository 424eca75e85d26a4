"""Driver: taking one batch for one partition. Validates the header and CRC, checks the sequence, appends.

The batch is never opened, except where a topic's own promise needs it: a compacted topic refuses records without a
key, and a topic with its own compression stores batches in it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.broker.batch_opening import Opened, open_batch
from headrace.broker.partition import Partition
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.log.results import Duplicate
from headrace.records.batch import read_header
from headrace.records.validate import validate_produced

# The Python-level constructor of a NamedTuple costs more than the tuple itself.
_new: Any = tuple.__new__

_KEYLESS = "a compacted topic takes no records without a key"


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
    partition: Partition,
    records: memoryview,
    *,
    acks: int,
    version: int,
    wall_ms: int,
    ticket: int = 0,
    opened: Opened | None = None,
) -> Taken:
    """`opened`: what a thread has found out already about a batch that must be opened (X12)."""
    refusal = partition.refusal(acks)
    if refusal is not None:
        return Taken(refusal)
    room = partition.room
    if room is not None and room.is_low:
        return Taken(ErrorKind.KAFKA_STORAGE_ERROR, message=room.refusal)
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
        return Taken(header.kind, message=header.detail)
    if partition.opens_batches:
        opened = open_batch(records, config) if opened is None else opened
        if opened.corrupt is not None:
            return Taken(ErrorKind.CORRUPT_MESSAGE, message=opened.corrupt)
        if opened.keyless:
            return Taken(ErrorKind.INVALID_RECORD, message=_KEYLESS, keyless=opened.keyless)
        if opened.records is not records:
            records, header = opened.records, read_header(opened.records)
    result = partition.append(records, header, urgent=acks == -1, ticket=ticket)
    if isinstance(result, Rejected):
        return Taken(result.kind, message=result.detail or None)
    if isinstance(result, Duplicate):
        # R38: the original's own offset, and it is acknowledged only once that offset is committed.
        stamped = result.timestamp if config.is_log_append_time else -1
        return Taken(ErrorKind.NONE, result.base_offset, stamped, result.last_offset + 1)
    base_offset, last_offset, log_append_time = result
    taken: Taken = _new(Taken, (ErrorKind.NONE, base_offset, log_append_time, last_offset + 1, None, ()))
    return taken
