"""Codec: Fetch responses (API key 1), by hand because all data leaves through them.

v5 log start offset, v7 sessions, v11 preferred read replica, v12 flexible with diverging epoch, leader and snapshot in tags,
v13 topic ids, v16 node endpoints (KIP-951). Invariant: record data is never copied, in either direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, NamedTuple

from headrace.core.ids import ZERO_UUID
from headrace.core.ports import Buffer
from headrace.core.stored import Piece, Stored
from headrace.core.tuples import new_tuple
from headrace.wire.fetch import FIRST, FLEXIBLE, LAST, TOPIC_IDS
from headrace.wire.leader_hint import (
    LEADER,
    NO_LEADER,
    LeaderIdAndEpoch,
    NodeEndpoint,
    encode_endpoints,
    read_endpoints,
    read_leader,
)
from headrace.wire.primitives import MALFORMED, ProtocolError, Reader, fail, read_uvarint, uvarint
from headrace.wire.schema import HAND_WRITTEN, MESSAGES, MessageSpec


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    epoch: int
    end_offset: int


class SnapshotId(NamedTuple):
    end_offset: int
    epoch: int


class FetchPartitionResponse(NamedTuple):
    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    """None unless the fetch was read_committed; sorted by first offset."""
    preferred_read_replica: int = -1
    records: Piece | Sequence[Buffer] | None = b""
    """One buffer or several that follow each other, or bytes in a file; decoded as one memoryview."""
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch = NO_LEADER
    snapshot_id: SnapshotId | None = None


class FetchTopicResponse(NamedTuple):
    name: str
    topic_id: bytes
    partitions: list[FetchPartitionResponse]


class FetchResponse(NamedTuple):
    topics: list[FetchTopicResponse]
    error_code: int = 0
    session_id: int = 0
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


_ONE_PIECE = (bytes, memoryview, bytearray, Stored)
_head = Struct(">ihi").pack
_part_v12 = Struct(">ihqqqxi").pack
_part_v5 = Struct(">ihqqq")
_part_v4 = Struct(">ihqq")
_aborted_v12 = Struct(">qqx").pack
_aborted = Struct(">qq")
_int32 = Struct(">i")
_int16 = Struct(">h").pack
_epoch_end = Struct(">iqx").pack
_snapshot = Struct(">qix").pack


def encode_fetch_response(response: FetchResponse, version: int) -> list[Piece]:
    """Small buffers of ours with the callers' record buffers between them, in order."""
    if version < FLEXIBLE:
        return _encode_classic(response, version)
    out: list[Piece] = []
    small = bytearray(_head(response.throttle_time_ms, response.error_code, response.session_id))
    small += uvarint(len(response.topics) + 1)
    for name, topic_id, partitions in response.topics:
        if version >= TOPIC_IDS:
            small += topic_id
        else:
            data = name.encode()
            small += uvarint(len(data) + 1)
            small += data
        small += uvarint(len(partitions) + 1)
        for partition in partitions:
            index, error, high, stable, start, aborted, preferred, records, diverging, leader, snapshot = (
                partition
            )
            if aborted is None:
                small += _part_v12(index, error, high, stable, start, preferred)
            else:
                small += _part_v5.pack(index, error, high, stable, start)
                small += uvarint(len(aborted) + 1)
                for producer_id, first_offset in aborted:
                    small += _aborted_v12(producer_id, first_offset)
                small += _int32.pack(preferred)
            if records is None:
                small += b"\x00"
            else:
                pieces: Sequence[Piece] = (records,) if isinstance(records, _ONE_PIECE) else records
                size = sum(map(len, pieces))
                small += uvarint(size + 1)
                if size:
                    out.append(small)
                    out += pieces
                    small = bytearray()
            if diverging is None and snapshot is None and leader == NO_LEADER:
                small += b"\x00"
            else:
                small += _encode_tags(partition)
        small += b"\x00"
    if response.node_endpoints and version >= 16:
        data = encode_endpoints(response.node_endpoints)
        small += b"\x01\x00" + uvarint(len(data)) + data
    else:
        small += b"\x00"
    out.append(small)
    return out


def _encode_tags(partition: FetchPartitionResponse) -> bytes:
    tagged = []
    if partition.diverging_epoch is not None:
        tagged.append((0, _epoch_end(*partition.diverging_epoch)))
    if partition.current_leader != NO_LEADER:
        tagged.append((1, LEADER.pack(*partition.current_leader)))
    if partition.snapshot_id is not None:
        tagged.append((2, _snapshot(*partition.snapshot_id)))
    return uvarint(len(tagged)) + b"".join(uvarint(tag) + uvarint(len(data)) + data for tag, data in tagged)


def _encode_classic(response: FetchResponse, version: int) -> list[Piece]:
    out: list[Piece] = []
    small = bytearray(_int32.pack(response.throttle_time_ms))
    if version >= 7:
        small += _int16(response.error_code) + _int32.pack(response.session_id)
    small += _int32.pack(len(response.topics))
    for name, _, partitions in response.topics:
        data = name.encode()
        small += _int16(len(data)) + data + _int32.pack(len(partitions))
        for index, error, high, stable, start, aborted, preferred, records, *_tagged in partitions:
            if version >= 5:
                small += _part_v5.pack(index, error, high, stable, start)
            else:
                small += _part_v4.pack(index, error, high, stable)
            small += _int32.pack(-1 if aborted is None else len(aborted))
            for producer_id, first_offset in aborted or ():
                small += _aborted.pack(producer_id, first_offset)
            if version >= 11:
                small += _int32.pack(preferred)
            if records is None:
                small += _int32.pack(-1)
                continue
            pieces: Sequence[Piece] = (records,) if isinstance(records, _ONE_PIECE) else records
            size = sum(map(len, pieces))
            small += _int32.pack(size)
            if size:
                out.append(small)
                out += pieces
                small = bytearray()
    out.append(small)
    return out


def decode_fetch_response(view: Buffer, pos: int, version: int) -> FetchResponse:
    """Records are slices of `view`, so it has to stay untouched while they are in use."""
    reader = Reader(view, pos, flexible=version >= FLEXIBLE)
    try:
        throttle_time_ms = reader.int32()
        error_code, session_id = (reader.int16(), reader.int32()) if version >= 7 else (0, 0)
        topics = reader.array(3, lambda inner: _read_topic(inner, version))
        endpoints: list[NodeEndpoint] = []
        reader.tags({0: lambda inner: endpoints.extend(read_endpoints(inner))} if version >= 16 else None)
        reader.finish()
    except MALFORMED as error:
        raise ProtocolError(f"Fetch response v{version}: {error}") from None
    return FetchResponse(topics, error_code, session_id, throttle_time_ms, tuple(endpoints))


def _read_topic(reader: Reader, version: int) -> FetchTopicResponse:
    name, topic_id = ("", reader.uuid()) if version >= TOPIC_IDS else (reader.string(), ZERO_UUID)
    read = _read_partition_flexible if version >= FLEXIBLE else _read_partition_classic
    partitions = reader.array(28, lambda inner: read(inner, version))
    reader.tags()
    return FetchTopicResponse(name, topic_id, partitions)


def _read_partition_flexible(reader: Reader, version: int) -> FetchPartitionResponse:
    view = reader.buf
    pos = reader.pos
    fixed = _part_v5.unpack_from(view, pos)
    pos += 30
    aborted = None
    if view[pos]:
        reader.pos = pos
        aborted = tuple(reader.array(17, _read_aborted))
        pos = reader.pos
    else:
        pos += 1
    (preferred,) = _int32.unpack_from(view, pos)
    pos += 4
    size, pos = read_uvarint(view, pos)
    records = None
    if size:
        stop = pos + size - 1
        if stop > reader.end:
            fail(f"{size - 1} bytes of records are claimed, {reader.end - pos} are there")
        records = view[pos:stop]
        pos = stop
    if view[pos] == 0:
        reader.pos = pos + 1
        row = (*fixed, aborted, preferred, records, None, NO_LEADER, None)
        partition: FetchPartitionResponse = new_tuple(FetchPartitionResponse, row)
        return partition
    reader.pos = pos
    tagged: dict[str, Any] = {}
    reader.tags(_tag_readers(tagged))
    partition = FetchPartitionResponse._make((*fixed, aborted, preferred, records, None, NO_LEADER, None))
    return partition._replace(**tagged)


def _tag_readers(into: dict[str, Any]) -> dict[int, Callable[[Reader], None]]:
    def diverging(inner: Reader) -> None:
        into["diverging_epoch"] = EpochEndOffset(inner.int32(), inner.int64())
        inner.tags()

    def snapshot(inner: Reader) -> None:
        into["snapshot_id"] = SnapshotId(inner.int64(), inner.int32())
        inner.tags()

    return {0: diverging, 1: lambda inner: into.update(current_leader=read_leader(inner)), 2: snapshot}


def _read_partition_classic(reader: Reader, version: int) -> FetchPartitionResponse:
    index, error, high, stable = reader.int32(), reader.int16(), reader.int64(), reader.int64()
    start = reader.int64() if version >= 5 else -1
    count = reader.count(16)
    aborted = None if count < 0 else tuple(_read_aborted(reader) for _ in range(count))
    preferred = reader.int32() if version >= 11 else -1
    return FetchPartitionResponse(
        index, error, high, stable, start, aborted, preferred, reader.nullable_bytes()
    )


def _read_aborted(reader: Reader) -> AbortedTransaction:
    aborted = AbortedTransaction(reader.int64(), reader.int64())
    reader.tags()
    return aborted


MESSAGES[FetchResponse] = MessageSpec(1, FIRST, LAST, FLEXIBLE)
HAND_WRITTEN[FetchResponse] = (decode_fetch_response, encode_fetch_response)
