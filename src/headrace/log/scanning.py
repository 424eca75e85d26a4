"""Codec: walking the batches of a log file, trusting nothing (S1, S2).

The CRC covers a batch from byte 21 on. What is in front of it is checked against its surroundings: magic and length
here and in records.batch, offsets against the batch before, epochs against the cache of epochs.

Invariant: a batch that comes out of here is whole, passes its CRC, and follows the one before it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from headrace.core.limits import MIB
from headrace.core.ports import File
from headrace.log.epochs import LeaderEpochs
from headrace.records.batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    BatchHeader,
    CorruptBatch,
    crc_matches,
    read_header,
)

SCAN_CHUNK_BYTES = MIB
SECTOR_BYTES = 512

_unpack_front = struct.Struct(">qiibIhi").unpack_from
_MIN_LENGTH = HEADER_BYTES - LENGTH_PREFIX_BYTES


class BadBatch(Exception):
    """What is at `position` of the file is not the next batch."""

    def __init__(self, position: int, offset: int, detail: str, *, short: bool = False) -> None:
        super().__init__(detail)
        self.position = position
        self.offset = offset
        """Where the log is whole up to."""
        self.detail = detail
        self.short = short
        """The file ends before the batch does."""


class Scanned(NamedTuple):
    position: int
    """In the file."""
    header: BatchHeader
    data: bytes
    at: int
    """The batch is `data[at : at + header.size]`."""


class Selection(NamedTuple):
    begin: int
    end: int
    next_offset: int
    """After the last selected (or skipped) batch."""
    missing: int
    """Not zero: nothing whole was found, and to go on at `begin` at least this many bytes are needed."""


def scan_file(file: File, start: int, end: int, expected_offset: int, *, gaps: bool) -> Iterator[Scanned]:
    """Every batch in [start, end) of the file, or BadBatch at the first that is none.

    `gaps`: offsets may jump ahead, as they do in compacted logs.
    """
    position, data, data_start, epoch = start, b"", start, -1
    while position < end:
        at = position - data_start
        if at + HEADER_BYTES > len(data):
            data, data_start, at = file.read(position, min(SCAN_CHUNK_BYTES, end - position)), position, 0
        try:
            header = read_header(data, at)
        except CorruptBatch as error:
            short = end - position < HEADER_BYTES
            raise BadBatch(position, expected_offset, str(error), short=short) from None
        size = header.size
        if position + size > end:
            detail = f"a batch of {size} bytes with {end - position} left"
            raise BadBatch(position, expected_offset, detail, short=True)
        if at + size > len(data):
            wanted = min(max(size, SCAN_CHUNK_BYTES), end - position)
            data, data_start, at = file.read(position, wanted), position, 0
        problem = _misfit(header, expected_offset, epoch, gaps)
        if problem is None and not crc_matches(data, at, header):
            problem = "the CRC does not match"
        if problem is not None:
            raise BadBatch(position, expected_offset, problem)
        yield Scanned(position, header, data, at)
        position += size
        expected_offset, epoch = header.next_offset, header.leader_epoch


def _misfit(header: BatchHeader, expected_offset: int, epoch: int, gaps: bool) -> str | None:
    """S2: the fields that the CRC does not cover."""
    base = header.base_offset
    if base < expected_offset or (base > expected_offset and not gaps):
        return f"base offset {base} where {expected_offset} comes next"
    if header.last_offset_delta < 0:
        return f"last offset delta {header.last_offset_delta}"
    if header.leader_epoch < epoch:
        return f"leader epoch {header.leader_epoch} after {epoch}"
    return None


def find_valid_batch(file: File, start: int, end: int, expected_offset: int) -> int | None:
    """Where, after damage at `start`, the next whole batch begins. Finding one tells rot from a torn tail (S3)."""
    position = start
    while position + HEADER_BYTES <= end:
        data = file.read(position, min(SCAN_CHUNK_BYTES, end - position))
        at = data.find(MAGIC_V2, MAGIC_POSITION)
        while at >= 0:
            found = position + at - MAGIC_POSITION
            if found + HEADER_BYTES <= end and _is_batch(
                file, data, found - position, found, end, expected_offset
            ):
                return found
            at = data.find(MAGIC_V2, at + 1)
        if len(data) < SCAN_CHUNK_BYTES:
            return None
        position += len(data) - HEADER_BYTES
    return None


def _is_batch(file: File, data: bytes, at: int, position: int, end: int, expected_offset: int) -> bool:
    if at + HEADER_BYTES > len(data):
        data, at = file.read(position, HEADER_BYTES), 0
    base, length, _epoch, _magic, _crc, _attributes, last_delta = _unpack_front(data, at)
    size = length + LENGTH_PREFIX_BYTES
    if length < _MIN_LENGTH or position + size > end or base < expected_offset or last_delta < 0:
        return False
    if at + size > len(data):
        data, at = file.read(position, size), 0
    return crc_matches(data, at, read_header(data, at))


def has_lost_sector(file: File, position: int, end: int, expected_offset: int) -> bool:
    """Is a sector of [position, end) all zero? Then that block was never written out: a power cut, not rot.

    `end` is where a batch seems to begin. Its offset is not under its CRC, so the front of it may lie in the lost block: the sector
    that `end` is in counts whole.
    """
    boundary = -(-position // SECTOR_BYTES) * SECTOR_BYTES
    end = -(-end // SECTOR_BYTES) * SECTOR_BYTES
    # The rest of a sector whose front had been synced.
    if _is_lost_front(file.read(position, min(boundary, end) - position), expected_offset):
        return True
    zeros = bytes(SECTOR_BYTES)
    while boundary + SECTOR_BYTES <= end:
        data = file.read(boundary, min(SCAN_CHUNK_BYTES, end - boundary))
        if any(data[at : at + SECTOR_BYTES] == zeros for at in range(0, len(data), SECTOR_BYTES)):
            return True
        if len(data) < SCAN_CHUNK_BYTES:
            return False
        boundary += SCAN_CHUNK_BYTES
    return False


def _is_lost_front(front: bytes, expected_offset: int) -> bool:
    """All zero, where a batch that begins at `expected_offset` or above it has something else: its offset, or at the latest its length."""
    if not front or any(front):
        return False
    return len(front) >= LENGTH_PREFIX_BYTES or any(expected_offset.to_bytes(8)[: len(front)])


def select_batches(
    data: bytes, expected: int, offset: int, max_bytes: int, upto: int, dense: bool, epochs: LeaderEpochs
) -> Selection:
    """The batches of `data` from the one that holds `offset` on, below `upto`, whole, at most `max_bytes` of them but
    at least one (KIP-74). Raises BadBatch when one of them is damaged. The hot loop of every fetch."""
    position, begin, limit = 0, -1, len(data)
    epoch: int | None = None
    view = memoryview(data)
    while position + HEADER_BYTES <= limit:
        base, length, batch_epoch, magic, crc, _, last_delta = _unpack_front(data, position)
        if magic != MAGIC_V2 or length < _MIN_LENGTH or last_delta < 0:
            raise BadBatch(position, expected, "not a batch header")
        if base != expected and (dense or base < expected):
            raise BadBatch(position, expected, f"base offset {base} where {expected} comes next")
        following = position + length + LENGTH_PREFIX_BYTES
        batch_next = base + last_delta + 1
        if base >= upto:
            break
        if batch_next <= offset:
            position, expected = following, batch_next
            continue
        if begin >= 0 and following - begin > max_bytes:
            break
        if following > limit:
            if begin < 0:
                return Selection(position, position, expected, following - position)
            break
        if crc32c(view[position + CRC_START : following]) != crc:
            raise BadBatch(position, base, "the CRC does not match")
        if batch_next > upto:
            break  # only after the CRC: a damaged count must not stop every reader here for good
        if batch_epoch != epoch:
            epoch = epochs.epoch_at(base)
            if batch_epoch != epoch:
                raise BadBatch(position, base, f"leader epoch {batch_epoch} where {epoch} led")
        if begin < 0:
            begin = position
        position, expected = following, batch_next
    else:
        if begin < 0:
            # Not even a header was left after skipping: more data is needed to say anything.
            return Selection(position, position, expected, HEADER_BYTES)
    if begin < 0:
        return Selection(position, position, expected, 0)
    return Selection(begin, position, expected, 0)
