"""Codec: Produce (API key 0), by hand because every message passes here.

v3-8 classic, v9 flexible, v5 log start offset, v8 per-record errors, v10 leader hints (KIP-951), v12 implicit
transactions (KIP-890), v13 topic ids instead of names. Invariants: record data is a slice of the frame, never a copy; a
decoder returns a value or raises ProtocolError and takes the whole buffer (X10).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from headrace.core.ids import ZERO_UUID
from headrace.core.ports import Buffer
from headrace.core.tuples import new_tuple
from headrace.wire.leader_hint import (
    LEADER,
    NO_LEADER,
    LeaderIdAndEpoch,
    NodeEndpoint,
    encode_endpoints,
    read_endpoints,
    read_leader,
)
from headrace.wire.primitives import (
    MALFORMED,
    UNLIMITED,
    ProtocolError,
    Reader,
    Writer,
    fail,
    read_uvarint,
    skip_counted_tags,
    too_many,
    uvarint,
)
from headrace.wire.schema import HAND_WRITTEN, MESSAGES, MessageSpec

FIRST = 3
FLEXIBLE = 9
TOPIC_IDS = 13
LAST = 13


class ProducePartition(NamedTuple):
    partition: int
    records: Buffer | None


class ProduceTopic(NamedTuple):
    name: str
    """Empty from v13 on."""
    topic_id: bytes
    """Zero before v13."""
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class RecordError(NamedTuple):
    batch_index: int
    message: str | None = None


class ProducePartitionResponse(NamedTuple):
    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = NO_LEADER


class ProduceTopicResponse(NamedTuple):
    name: str
    topic_id: bytes
    partitions: list[ProducePartitionResponse]


class ProduceResponse(NamedTuple):
    topics: list[ProduceTopicResponse]
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


_acks_timeout_count = Struct(">hiB").unpack_from
_acks_timeout_count32 = Struct(">hii").unpack_from
_no_id_acks_timeout_count32 = Struct(">hhii").unpack_from
_id_count = Struct(">16sB").unpack_from
_index_size = Struct(">iB").unpack_from
_index_size32 = Struct(">ii").unpack_from
_int16 = Struct(">h").unpack_from
_NO_TAGS_AT_THE_END = b"\x00\x00\x00"
_int32 = Struct(">i").unpack_from


def decode_produce_request(view: Buffer, pos: int, version: int, most: int = UNLIMITED) -> ProduceRequest:
    """TooManyEntries: more than `most` partitions, or topics without any (A3)."""
    if not FIRST <= version <= LAST:
        raise ProtocolError(f"Produce v{version} is not served")
    if type(view) is not memoryview:
        view = memoryview(view)
    try:
        if version >= FLEXIBLE:
            return _decode_flexible(view, pos, version >= TOPIC_IDS, most)
        return _decode_classic(view, pos, most)
    except MALFORMED as error:
        raise ProtocolError(f"Produce v{version}: {error}") from None


def _decode_one_batch(view: memoryview, pos: int) -> ProduceRequest | None:
    """The shape of nearly every request: no transaction, one topic by name, one partition, no tags. None: another shape,
    or a malformed one; the general decoder finds out which. What it takes, the general decoder takes for the same."""
    end = len(view)
    # Everything behind the records is known: three empty lists of tags.
    if end - pos < 20 or view[pos] or view[pos + 7] != 2 or view[end - 3 :] != _NO_TAGS_AT_THE_END:
        return None
    name_end = pos + 8 + view[pos + 8]
    if view[pos + 8] > 127 or name_end + 7 > end or name_end < pos + 9 or view[name_end] != 2:
        return None
    index, size = _index_size(view, name_end + 1)
    start = name_end + 6
    if size > 127:
        size, start = _long_size(view, start, size)
    if size == 0 or start + size - 1 != end - 3:
        return None
    acks, timeout_ms, _ = _acks_timeout_count(view, pos + 1)
    partition = new_tuple(ProducePartition, (index, view[start : end - 3]))
    topic = new_tuple(ProduceTopic, (str(view[pos + 9 : name_end], "utf-8"), ZERO_UUID, [partition]))
    request: ProduceRequest = new_tuple(ProduceRequest, (None, acks, timeout_ms, [topic]))
    return request


def _decode_flexible(view: memoryview, pos: int, by_id: bool, left: int) -> ProduceRequest:
    if not by_id:
        usual = _decode_one_batch(view, pos)
        if usual is not None:
            return usual
    end = len(view)
    transactional_id: str | None = None
    if view[pos]:
        reader = Reader(view, pos)
        transactional_id = reader.nullable_string()
        pos = reader.pos
    else:
        pos += 1
    acks, timeout_ms, count = _acks_timeout_count(view, pos)
    pos += 7
    if count > 127:
        count, pos = read_uvarint(view, pos - 1)
    if count < 1 or (count - 1) * (18 if by_id else 3) > end - pos:
        fail(f"{count - 1} topics are claimed, {end - pos} bytes are there")
    if count - 1 > left:
        too_many()
    topics: list[ProduceTopic] = []
    for _ in range(count - 1):
        if by_id:
            name = ""
            topic_id, count = _id_count(view, pos)
            pos += 17
        else:
            topic_id = ZERO_UUID
            size = view[pos]
            pos += 1
            if size > 127:
                size, pos = read_uvarint(view, pos - 1)
            stop = pos + size - 1
            if stop >= end or size < 1:
                fail("a topic name is null or longer than the request")
            name = str(view[pos:stop], "utf-8")
            count = view[stop]
            pos = stop + 1
        if count > 127:
            count, pos = read_uvarint(view, pos - 1)
        if count < 1 or (count - 1) * 6 > end - pos:
            fail(f"{count - 1} partitions are claimed, {end - pos} bytes are there")
        left -= count - 1 or 1
        if left < 0:
            too_many()
        partitions: list[ProducePartition] = []
        for _ in range(count - 1):
            index, size = _index_size(view, pos)
            pos += 5
            if size > 127:
                size, pos = _long_size(view, pos, size)
            if size:
                stop = pos + size - 1
                if stop >= end:
                    fail(f"{size - 1} bytes of records are claimed, {end - pos} are there")
                partitions.append(new_tuple(ProducePartition, (index, view[pos:stop])))
                pos = stop
            else:
                partitions.append(new_tuple(ProducePartition, (index, None)))
            pos, left = skip_counted_tags(view, pos, left) if view[pos] else (pos + 1, left)
        topics.append(new_tuple(ProduceTopic, (name, topic_id, partitions)))
        pos, left = skip_counted_tags(view, pos, left) if view[pos] else (pos + 1, left)
    pos = skip_counted_tags(view, pos, left)[0] if view[pos] else pos + 1
    if pos != end:
        fail(f"{end - pos} bytes are left over")
    request: ProduceRequest = new_tuple(ProduceRequest, (transactional_id, acks, timeout_ms, topics))
    return request


def _long_size(view: memoryview, pos: int, first: int) -> tuple[int, int]:
    """A varint of more than one byte whose `first` is before `pos`: batches of 128 B to 2 MiB have two or three."""
    second = view[pos]
    if second < 128:
        return first + (second - 1 << 7), pos + 1
    third = view[pos + 1]
    if third < 128:
        return first - 128 + (second - 128 << 7) + (third << 14), pos + 2
    return read_uvarint(view, pos - 1)


def _decode_classic(view: memoryview, pos: int, left: int) -> ProduceRequest:
    end = len(view)
    transactional_id: str | None = None
    size, acks, timeout_ms, count = _no_id_acks_timeout_count32(view, pos)
    if size == -1:
        pos += 12
    else:
        reader = Reader(view, pos, flexible=False)
        transactional_id = reader.nullable_string()
        acks, timeout_ms, count = _acks_timeout_count32(view, reader.pos)
        pos = reader.pos + 10
    if count < 0 or count * 6 > end - pos:
        fail(f"{count} topics are claimed, {end - pos} bytes are there")
    if count > left:
        too_many()
    topics: list[ProduceTopic] = []
    for _ in range(count):
        (size,) = _int16(view, pos)
        pos += 2
        stop = pos + size
        if size < 0 or stop > end:
            fail("a topic name is null or longer than the request")
        name = str(view[pos:stop], "utf-8")
        (count,) = _int32(view, stop)
        pos = stop + 4
        if count < 0 or count * 8 > end - pos:
            fail(f"{count} partitions are claimed, {end - pos} bytes are there")
        left -= count or 1
        if left < 0:
            too_many()
        partitions: list[ProducePartition] = []
        for _ in range(count):
            index, size = _index_size32(view, pos)
            pos += 8
            stop = pos + size
            if size == -1:
                partitions.append(new_tuple(ProducePartition, (index, None)))
                continue
            if size < 0 or stop > end:
                fail(f"{size} bytes of records are claimed, {end - pos} are there")
            partitions.append(new_tuple(ProducePartition, (index, view[pos:stop])))
            pos = stop
        topics.append(new_tuple(ProduceTopic, (name, ZERO_UUID, partitions)))
    if pos != end:
        fail(f"{end - pos} bytes are left over")
    request: ProduceRequest = new_tuple(ProduceRequest, (transactional_id, acks, timeout_ms, topics))
    return request


_throttle_and_no_tags = Struct(">ix").pack
_throttle = Struct(">i").pack
_part_v9 = Struct(">ihqqqBxx").pack
_part_v9_open = Struct(">ihqqq").pack
_part_v5 = Struct(">ihqqq").pack
_part_v3 = Struct(">ihqq").pack
_NO_ERRORS_V8 = b"\x00\x00\x00\x00\xff\xff"


def encode_produce_response(response: ProduceResponse, version: int) -> bytes:
    topics, throttle_time_ms, endpoints = response
    if version < FLEXIBLE:
        return _encode_classic_response(response, version)
    if len(topics) == 1 and len(topics[0][2]) == 1 and not endpoints:
        # One batch that was taken: nearly every answer there is.
        name, topic_id, ((index, error, base, appended, start, record_errors, text, leader),) = topics[0]
        if not record_errors and text is None and leader is NO_LEADER:
            row = _part_v9(index, error, base, appended, start, 1)
            data = name.encode()
            return b"".join(
                (
                    b"\x02",
                    topic_id if version >= TOPIC_IDS else uvarint(len(data) + 1) + data,
                    b"\x02",
                    row,
                    b"\x00",
                    _throttle_and_no_tags(throttle_time_ms),
                )
            )
    out = [uvarint(len(topics) + 1)]
    for name, topic_id, partitions in topics:
        if version >= TOPIC_IDS:
            out.append(topic_id)
        else:
            out.append(_compact(name))
        out.append(uvarint(len(partitions) + 1))
        for partition in partitions:
            index, error, base, appended, start, record_errors, text, leader = partition
            if not record_errors and text is None and leader is NO_LEADER:
                # One empty array, one null string, no tags.
                out.append(_part_v9(index, error, base, appended, start, 1))
            else:
                out.append(_part_v9_open(index, error, base, appended, start))
                out.append(_encode_failure(partition, version))
        out.append(b"\x00")
    if endpoints and version >= 10:
        data = encode_endpoints(endpoints)
        out += (_throttle(throttle_time_ms), b"\x01\x00", uvarint(len(data)), data)
    else:
        out.append(_throttle_and_no_tags(throttle_time_ms))
    return b"".join(out)


def _compact(name: str) -> bytes:
    data = name.encode()
    return uvarint(len(data) + 1) + data


def _encode_failure(partition: ProducePartitionResponse, version: int) -> bytes:
    writer = Writer()
    _write_record_errors(writer, partition)
    leader = partition.current_leader
    writer.tags([(0, LEADER.pack(*leader))] if version >= 10 and leader != NO_LEADER else None)
    return writer.join()


def _write_record_errors(writer: Writer, partition: ProducePartitionResponse) -> None:
    writer.count(len(partition.record_errors))
    for batch_index, text in partition.record_errors:
        writer.int32(batch_index)
        writer.string(text)
        writer.tags()
    writer.string(partition.error_message)


def _encode_classic_response(response: ProduceResponse, version: int) -> bytes:
    writer = Writer(flexible=False)
    writer.count(len(response.topics))
    for name, _, partitions in response.topics:
        writer.string(name)
        writer.count(len(partitions))
        for partition in partitions:
            index, error, base, appended, start, record_errors, text, _ = partition
            if version < 5:
                writer.raw(_part_v3(index, error, base, appended))
                continue
            writer.raw(_part_v5(index, error, base, appended, start))
            if version == 8:
                if not record_errors and text is None:
                    writer.raw(_NO_ERRORS_V8)
                else:
                    _write_record_errors(writer, partition)
    writer.int32(response.throttle_time_ms)
    return writer.join()


def encode_produce_request(request: ProduceRequest, version: int) -> list[Buffer]:
    writer = Writer(flexible=version >= FLEXIBLE)
    writer.string(request.transactional_id)
    writer.int16(request.acks)
    writer.int32(request.timeout_ms)
    writer.count(len(request.topics))
    for name, topic_id, partitions in request.topics:
        if version >= TOPIC_IDS:
            writer.raw(topic_id)
        else:
            writer.string(name)
        writer.count(len(partitions))
        for index, records in partitions:
            writer.int32(index)
            writer.record_data(records)
            writer.tags()
        writer.tags()
    writer.tags()
    return writer.out


def decode_produce_response(view: Buffer, pos: int, version: int) -> ProduceResponse:
    flexible = version >= FLEXIBLE
    reader = Reader(view, pos, flexible=flexible)

    def partition(reader: Reader) -> ProducePartitionResponse:
        index, error, base, appended = reader.int32(), reader.int16(), reader.int64(), reader.int64()
        start = reader.int64() if version >= 5 else -1
        record_errors: Sequence[RecordError] = ()
        text = None
        if version >= 8:
            record_errors = tuple(reader.array(6, _read_record_error))
            text = reader.nullable_string()
        leader = [NO_LEADER]
        known = {0: lambda inner: leader.append(read_leader(inner))} if version >= 10 else None
        reader.tags(known)
        return ProducePartitionResponse(index, error, base, appended, start, record_errors, text, leader[-1])

    def topic(reader: Reader) -> ProduceTopicResponse:
        name, topic_id = ("", reader.uuid()) if version >= TOPIC_IDS else (reader.string(), ZERO_UUID)
        partitions = reader.array(22, partition)
        reader.tags()
        return ProduceTopicResponse(name, topic_id, partitions)

    topics = reader.array(3, topic)
    throttle_time_ms = reader.int32()
    endpoints: list[NodeEndpoint] = []
    reader.tags({0: lambda inner: endpoints.extend(read_endpoints(inner))} if version >= 10 else None)
    reader.finish()
    return ProduceResponse(topics, throttle_time_ms, tuple(endpoints))


def _read_record_error(reader: Reader) -> RecordError:
    error = RecordError(reader.int32(), reader.nullable_string())
    reader.tags()
    return error


MESSAGES[ProduceRequest] = MESSAGES[ProduceResponse] = MessageSpec(0, FIRST, LAST, FLEXIBLE)
HAND_WRITTEN[ProduceRequest] = (decode_produce_request, encode_produce_request)
HAND_WRITTEN[ProduceResponse] = (
    decode_produce_response,
    lambda value, version: [encode_produce_response(value, version)],
)
