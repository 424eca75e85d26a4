"""Codec: the 61-byte header of a record batch (Kafka's v2 format, big endian), without opening the batch.

The batch is the unit on the wire, on disk and between replicas, so the hot path only ever reads and stamps this
header. Bytes 0-20 are outside the CRC, which is why a broker may write the base offset and the leader epoch in
place; from byte 21 (attributes) on a change needs a new CRC.

      0 baseOffset      8 batchLength    12 leaderEpoch    16 magic    17 crc32c(21..end)
     21 attributes     23 lastOffsetDelta 27 baseTimestamp 35 maxTimestamp
     43 producerId     51 producerEpoch  53 baseSequence   57 recordCount   61 records...

Invariant: functions that read raise CorruptBatch on any bytes that are not a batch, and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from headrace.core.ports import Buffer
from headrace.core.tuples import new_tuple

HEADER_BYTES = 61
LENGTH_PREFIX_BYTES = 12
"""baseOffset and batchLength: what batchLength does not count."""

CRC_POSITION = 17
CRC_START = 21
MAGIC_POSITION = 16
MAGIC_V2 = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

ABORT_MARKER = 0
COMMIT_MARKER = 1
"""The two kinds of control record that end a transaction (kafka.md 5.2)."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
MAX_SEQUENCE = 2**31 - 1

MIN_RECORD_BYTES = 7
"""Seven one-byte fields: the smallest record there can be, so it bounds a claimed record count (X10)."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_unpack_header = _HEADER.unpack_from
_pack_offset = struct.Struct(">q").pack_into
_pack_epoch = struct.Struct(">i").pack_into
_pack_crc = struct.Struct(">I").pack_into
_pack_attributes = struct.Struct(">h").pack_into
_MIN_LENGTH = HEADER_BYTES - LENGTH_PREFIX_BYTES


LENGTH: Final = 1
MAGIC: Final = 3
CRC: Final = 4
ATTRIBUTES: Final = 5
LAST_OFFSET_DELTA: Final = 6
MAX_TIMESTAMP: Final = 8
PRODUCER_ID: Final = 9
RECORD_COUNT: Final = 12
"""Places in a `BatchHeader`, for the path of every batch: `header.crc` costs a look-up that `header[CRC]` does not."""


class CorruptBatch(ValueError):
    """These bytes are not a record batch, or not one we agree to open."""


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def last_sequence(self) -> int:
        """R39: after 2^31-1 comes 0. Without a sequence there is no last one either."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. The batch itself may still be cut short or fail its CRC."""
    try:
        header = new_tuple(BatchHeader, _unpack_header(buffer, position))
    except struct.error:
        raise CorruptBatch(f"{len(buffer) - position} bytes are too few for a batch header") from None
    # S2: magic and length are outside the CRC, so they are range-checked here. Indexes: a hot path.
    if header[MAGIC] != MAGIC_V2:
        raise CorruptBatch(f"magic {header[MAGIC]} where 2 was expected")
    if header[LENGTH] < _MIN_LENGTH:
        raise CorruptBatch(f"a batch of length {header[LENGTH]} is shorter than its own header")
    return header


def crc_matches(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """S1. False also when the buffer ends before the batch does."""
    end = position + header[LENGTH] + LENGTH_PREFIX_BYTES
    if end > len(buffer):
        return False
    # A memoryview, because slicing bytes would copy the batch.
    return bool(crc32c(memoryview(buffer)[position + CRC_START : end]) == header[CRC])


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write what only the leader knows, in place. Both fields are outside the CRC."""
    _pack_offset(buffer, position, base_offset)
    _pack_epoch(buffer, position + 12, leader_epoch)


def stamp_log_append_time(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, wall_ms: int
) -> BatchHeader:
    """Give every record of the batch the broker's time: bit 3, maxTimestamp, and therefore a new CRC.

    baseTimestamp stays as it was: consumers take maxTimestamp for each record when bit 3 is set.
    """
    attributes = header.attributes | LOG_APPEND_TIME_BIT
    _pack_attributes(buffer, position + CRC_START, attributes)
    _pack_offset(buffer, position + 35, wall_ms)
    crc = seal(buffer, position, header.size)
    return header._replace(attributes=attributes, max_timestamp=wall_ms, crc=crc)


def seal(buffer: bytearray | memoryview, position: int, size: int) -> int:
    """Compute the CRC of the batch at `position`, write it, and return it."""
    crc = int(crc32c(memoryview(buffer)[position + CRC_START : position + size]))
    _pack_crc(buffer, position + CRC_POSITION, crc)
    return crc


def pack_header(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Write a whole header; `seal` it afterwards."""
    _HEADER.pack_into(buffer, position, *header)


def scan(buffer: Buffer, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """The whole batches in `buffer[position:end]`, front to back.

    A batch that is cut short ends the walk: a fetch answer may end in the middle of one. CRCs are not checked.
    """
    limit = len(buffer) if end is None else min(end, len(buffer))
    while position + HEADER_BYTES <= limit:
        header = read_header(buffer, position)
        following = position + header[LENGTH] + LENGTH_PREFIX_BYTES
        if following > limit:
            return
        yield position, header
        position = following
