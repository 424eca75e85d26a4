"""Codec: Fetch requests (API key 1), by hand because consumers and replicas poll with them; responses are in
wire/fetch_response.py.

v4-11 classic, v12 flexible. v5 log start offset, v7 sessions (KIP-227), v9 leader epochs, v11 rack, v12 last fetched epoch
(KIP-595), v13 topic ids, v15 replica state instead of replica id, v17 directory id, v18 high watermark (KIP-1166).
Invariant: a decoder returns a value or raises ProtocolError and takes the whole buffer (X10).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, NamedTuple

from headrace.core.ids import ZERO_UUID
from headrace.core.ports import Buffer
from headrace.core.tuples import new_tuple
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
)
from headrace.wire.schema import HAND_WRITTEN, MESSAGES, MessageSpec

FIRST = 4
FLEXIBLE = 12
TOPIC_IDS = 13
LAST = 18
UNKNOWN_HIGH_WATERMARK = 2**63 - 1

WHERE_TAG = 10_000
"""Far from the numbers that Kafka gives out."""


class FetchPartition(NamedTuple):
    partition: int
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 1 << 20
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = UNKNOWN_HIGH_WATERMARK


class FetchTopic(NamedTuple):
    name: str
    """Empty from v13 on."""
    topic_id: bytes
    """Zero before v13."""
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: list[int]


class FetchRequest(NamedTuple):
    replica_id: int
    """-1 for a consumer; in the tagged replica state from v15 on."""
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    cluster_id: str | None = None
    where: str = ""
    """A filter for everything that is asked for: our own tagged field, which other brokers step over (v12)."""


_head_v15 = Struct(">iiibiiB").unpack_from
_head_v12 = Struct(">iiiibiiB").unpack_from
_head_v7 = Struct(">iiiibii").unpack_from
_head_v4 = Struct(">iiiib").unpack_from
_partition_v12 = Struct(">iiqiqiB").unpack_from
_untagged_partition = Struct(">iiqiqix").pack
_partition_v9 = Struct(">iiqqi").unpack_from
_partition_v5 = Struct(">iqqi").unpack_from
_partition_v4 = Struct(">iqi").unpack_from
_id_count = Struct(">16sB").unpack_from
_replica_state = Struct(">iqx")
_int64 = Struct(">q")
_int16 = Struct(">h").unpack_from
_int32 = Struct(">i").unpack_from
# Nothing forgotten, no rack, no tags: almost every request ends like this.
_PLAIN_TAIL = [
    memoryview(b"" if v < 7 else bytes(4) if v < 11 else bytes(6) if v < 12 else b"\1\1\0")
    for v in range(LAST + 1)
]
_REPLICA_TAIL = b"\1\1\1\1\x0d"
"""And this is how a follower's requests end (v15): one tag, which has its state."""
_UNTAGGED = (ZERO_UUID, UNKNOWN_HIGH_WATERMARK)


def decode_fetch_request(view: Buffer, pos: int, version: int, most: int = UNLIMITED) -> FetchRequest:
    """TooManyEntries: more than `most` partitions, forgotten ones and topics without any included (A3)."""
    if not FIRST <= version <= LAST:
        raise ProtocolError(f"Fetch v{version} is not served")
    if type(view) is not memoryview:
        view = memoryview(view)
    try:
        if version >= FLEXIBLE:
            return _decode_flexible(view, pos, version, most)
        return _decode_classic(view, pos, version, most)
    except MALFORMED as error:
        raise ProtocolError(f"Fetch v{version}: {error}") from None


def _decode_flexible(view: memoryview, pos: int, version: int, left: int) -> FetchRequest:
    end = len(view)
    replica_id = -1
    if version >= 15:
        max_wait, min_bytes, max_bytes, isolation, session, epoch, count = _head_v15(view, pos)
        pos += 22
    else:
        replica_id, max_wait, min_bytes, max_bytes, isolation, session, epoch, count = _head_v12(view, pos)
        pos += 26
    if count > 127:
        count, pos = read_uvarint(view, pos - 1)
    by_id = version >= TOPIC_IDS
    if count < 1 or (count - 1) * (18 if by_id else 3) > end - pos:
        fail(f"{count - 1} topics are claimed, {end - pos} bytes are there")
    if count - 1 > left:
        too_many()
    topics: list[FetchTopic] = []
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
        if count < 1 or (count - 1) * 33 > end - pos:
            fail(f"{count - 1} partitions are claimed, {end - pos} bytes are there")
        left -= count - 1 or 1
        if left < 0:
            too_many()
        partitions: list[FetchPartition] = []
        for _ in range(count - 1):
            values = _partition_v12(view, pos)
            pos += 33
            partitions.append(new_tuple(FetchPartition, values[:6] + _UNTAGGED))
            if values[6]:
                reader = Reader(view, pos - 1, left=left)
                partitions[-1] = _tagged_partition(partitions[-1], reader, version)
                pos, left = reader.pos, reader.left
        topics.append(new_tuple(FetchTopic, (name, topic_id, partitions)))
        pos, left = skip_counted_tags(view, pos, left) if view[pos] else (pos + 1, left)
    head = (max_wait, min_bytes, max_bytes, isolation, session, epoch, topics)
    return _finish(view, pos, version, replica_id, head, left)


def _finish(
    view: memoryview, pos: int, version: int, replica_id: int, head: tuple[Any, ...], left: int
) -> FetchRequest:
    if view[pos:] == _PLAIN_TAIL[version]:
        request: FetchRequest = new_tuple(FetchRequest, (replica_id, -1, *head, (), "", None, ""))
        return request
    if (
        version >= 15
        and len(view) - pos == 18
        and view[pos : pos + 5] == _REPLICA_TAIL
        and not view[pos + 17]
    ):
        replica_id, replica_epoch = _replica_state.unpack_from(view, pos + 5)
        return FetchRequest._make((replica_id, replica_epoch, *head, (), "", None, ""))
    reader = Reader(view, pos, flexible=version >= FLEXIBLE, left=left)
    return _decode_tail(reader, version, replica_id, head)


def _tagged_partition(partition: FetchPartition, reader: Reader, version: int) -> FetchPartition:
    changed: dict[str, Any] = {}
    known = {
        0: lambda inner: changed.update(replica_directory_id=inner.uuid()),
        1: lambda inner: changed.update(high_watermark=inner.int64()),
    }
    reader.tags({tag: known[tag] for tag in range(min(max(version - 16, 0), 2))})
    return partition._replace(**changed)


def _decode_tail(reader: Reader, version: int, replica_id: int, head: tuple[Any, ...]) -> FetchRequest:
    """What follows the topics: forgotten topics (v7), rack (v11), tagged cluster id (v12) and replica state (v15)."""
    forgotten: list[ForgottenTopic] = []
    rack_id = ""
    if version >= 7:
        forgotten = reader.array(3, lambda inner: _read_forgotten(inner, version))
    if version >= 11:
        rack_id = reader.string()
    tagged: dict[str, Any] = {"cluster_id": None, "replica": (replica_id, -1), "where": ""}

    def replica_state(inner: Reader) -> None:
        tagged["replica"] = (inner.int32(), inner.int64())
        inner.tags()

    known: dict[int, Callable[[Reader], None]] = {
        0: lambda inner: tagged.update(cluster_id=inner.nullable_string()),
        WHERE_TAG: lambda inner: tagged.update(where=inner.string()),
    }
    if version >= 15:
        known[1] = replica_state
    reader.tags(known)
    reader.finish()
    row = (*tagged["replica"], *head, tuple(forgotten), rack_id, tagged["cluster_id"], tagged["where"])
    return FetchRequest._make(row)


def _read_forgotten(reader: Reader, version: int) -> ForgottenTopic:
    name, topic_id = ("", reader.uuid()) if version >= TOPIC_IDS else (reader.string(), ZERO_UUID)
    forgotten = ForgottenTopic(name, topic_id, reader.array(4, Reader.int32))
    reader.tags()
    return forgotten


def _decode_classic(view: memoryview, pos: int, version: int, left: int) -> FetchRequest:
    session, epoch = 0, -1
    if version >= 7:
        replica_id, max_wait, min_bytes, max_bytes, isolation, session, epoch = _head_v7(view, pos)
        pos += 25
    else:
        replica_id, max_wait, min_bytes, max_bytes, isolation = _head_v4(view, pos)
        pos += 17
    size = 28 if version >= 9 else 24 if version >= 5 else 16
    end = len(view)
    (count,) = _int32(view, pos)
    pos += 4
    if count < 0 or count * 6 > end - pos:
        fail(f"{count} topics are claimed, {end - pos} bytes are there")
    if count > left:
        too_many()
    topics: list[FetchTopic] = []
    for _ in range(count):
        (length,) = _int16(view, pos)
        pos += 2
        stop = pos + length
        if length < 0 or stop > end:
            fail("a topic name is null or longer than the request")
        name = str(view[pos:stop], "utf-8")
        (count,) = _int32(view, stop)
        pos = stop + 4
        if count < 0 or count * size > end - pos:
            fail(f"{count} partitions are claimed, {end - pos} bytes are there")
        left -= count or 1
        if left < 0:
            too_many()
        partitions: list[FetchPartition] = []
        for _ in range(count):
            leader_epoch = start = -1
            if version >= 9:
                partition, leader_epoch, offset, start, limit = _partition_v9(view, pos)
            elif version >= 5:
                partition, offset, start, limit = _partition_v5(view, pos)
            else:
                partition, offset, limit = _partition_v4(view, pos)
            pos += size
            row = (partition, leader_epoch, offset, -1, start, limit, *_UNTAGGED)
            partitions.append(new_tuple(FetchPartition, row))
        topics.append(new_tuple(FetchTopic, (name, ZERO_UUID, partitions)))
    head = (max_wait, min_bytes, max_bytes, isolation, session, epoch, topics)
    return _finish(view, pos, version, replica_id, head, left)


def encode_fetch_request(request: FetchRequest, version: int) -> bytes:
    writer = Writer(flexible=version >= FLEXIBLE)
    if version < 15:
        writer.int32(request.replica_id)
    writer.int32(request.max_wait_ms)
    writer.int32(request.min_bytes)
    writer.int32(request.max_bytes)
    writer.int8(request.isolation_level)
    if version >= 7:
        writer.int32(request.session_id)
        writer.int32(request.session_epoch)
    writer.count(len(request.topics))
    for name, topic_id, partitions in request.topics:
        _write_topic(writer, name, topic_id, len(partitions), version)
        for partition in partitions:
            _write_partition(writer, partition, version)
        writer.tags()
    if version >= 7:
        writer.count(len(request.forgotten_topics))
        for name, topic_id, indexes in request.forgotten_topics:
            _write_topic(writer, name, topic_id, len(indexes), version)
            for index in indexes:
                writer.int32(index)
            writer.tags()
    if version >= 11:
        writer.string(request.rack_id)
    tagged: list[tuple[int, bytes]] = []
    if request.cluster_id is not None:
        inner = Writer()
        inner.string(request.cluster_id)
        tagged.append((0, inner.join()))
    if version >= 15 and (request.replica_id, request.replica_epoch) != (-1, -1):
        tagged.append((1, _replica_state.pack(request.replica_id, request.replica_epoch)))
    if request.where and version >= FLEXIBLE:
        inner = Writer()
        inner.string(request.where)
        tagged.append((WHERE_TAG, inner.join()))
    writer.tags(tagged)
    return writer.join()


def _write_topic(writer: Writer, name: str, topic_id: bytes, count: int, version: int) -> None:
    if version >= TOPIC_IDS:
        writer.raw(topic_id)
    else:
        writer.string(name)
    writer.count(count)


def _write_partition(writer: Writer, partition: FetchPartition, version: int) -> None:
    index, leader_epoch, offset, last_epoch, start, limit, directory_id, high_watermark = partition
    if version >= FLEXIBLE and partition[6:] == _UNTAGGED:  # each round of a follower
        writer.raw(_untagged_partition(index, leader_epoch, offset, last_epoch, start, limit))
        return
    writer.int32(index)
    if version >= 9:
        writer.int32(leader_epoch)
    writer.int64(offset)
    if version >= 12:
        writer.int32(last_epoch)
    if version >= 5:
        writer.int64(start)
    writer.int32(limit)
    tagged: list[tuple[int, bytes]] = []
    if version >= 17 and directory_id != ZERO_UUID:
        tagged.append((0, directory_id))
    if version >= 18 and high_watermark != UNKNOWN_HIGH_WATERMARK:
        tagged.append((1, _int64.pack(high_watermark)))
    writer.tags(tagged)


MESSAGES[FetchRequest] = MessageSpec(1, FIRST, LAST, FLEXIBLE)
HAND_WRITTEN[FetchRequest] = (
    decode_fetch_request,
    lambda value, version: [encode_fetch_request(value, version)],
)
