"""Fetch by hand: bytes, zero copy, refusals. Values and versions at large are in tests/property."""

from __future__ import annotations

import pytest

from headrace.core.ids import ZERO_UUID
from headrace.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    decode_fetch_request,
    encode_fetch_request,
)
from headrace.wire.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    decode_fetch_response,
    encode_fetch_response,
)
from headrace.wire.leader_hint import LeaderIdAndEpoch, NodeEndpoint
from headrace.wire.primitives import ProtocolError, uvarint

TOPIC_ID = bytes(range(16))
ASKED = FetchPartition(3, 7, 100, -1, -1, 1 << 20)


def asking(version: int, **changes: object) -> FetchRequest:
    name, topic_id = ("t", ZERO_UUID) if version < 13 else ("", TOPIC_ID)
    partition = ASKED if version >= 9 else ASKED._replace(current_leader_epoch=-1)
    topics = [FetchTopic(name, topic_id, [partition])]
    return FetchRequest(-1, -1, 500, 1, 1 << 20, 1, 0, -1, topics)._replace(**changes)  # type: ignore[arg-type]


def test_bytes_of_a_consumers_request() -> None:
    head = b"\x00\x00\x01\xf4\x00\x00\x00\x01\x00\x10\x00\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"
    offset = b"\x00\x00\x00\x00\x00\x00\x00\x64"
    flexible = head + b"\x02" + TOPIC_ID + b"\x02\x00\x00\x00\x03\x00\x00\x00\x07" + offset
    flexible += b"\xff" * 12 + b"\x00\x10\x00\x00\x00\x00" + b"\x01\x01\x00"
    assert encode_fetch_request(asking(16), 16) == flexible
    assert decode_fetch_request(flexible, 0, 16) == asking(16)
    classic = b"\xff\xff\xff\xff" + head[:13] + b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01"
    classic += b"\x00\x00\x00\x03" + offset + b"\x00\x10\x00\x00"
    assert encode_fetch_request(asking(4), 4) == classic
    assert decode_fetch_request(b"head" + classic, 4, 4) == asking(4)


def test_a_replica_names_itself_in_a_tag_since_v15() -> None:
    for version in (14, 15):
        request = asking(version, replica_id=2, replica_epoch=9 if version == 15 else -1)
        assert decode_fetch_request(encode_fetch_request(request, version), 0, version) == request


def test_sessions_racks_and_clusters() -> None:
    request = asking(
        12,
        session_id=5,
        session_epoch=6,
        forgotten_topics=(ForgottenTopic("old", ZERO_UUID, [1, 2]),),
        rack_id="r1",
        cluster_id="c",
    )
    assert decode_fetch_request(encode_fetch_request(request, 12), 0, 12) == request
    assert decode_fetch_request(encode_fetch_request(request, 4), 0, 4) == asking(4)


def test_unknown_tags_of_a_partition_are_skipped() -> None:
    data = encode_fetch_request(asking(12), 12)
    # The partition's tag count is the byte before the topic's and the three of the plain tail.
    tagged = data[:-5] + b"\x01\x00\x10" + TOPIC_ID + data[-4:]
    assert decode_fetch_request(tagged, 0, 12) == asking(12)


@pytest.mark.parametrize("version", [0, 3, 19])
def test_versions_that_are_not_served_are_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match="not served"):
        decode_fetch_request(b"", 0, version)


@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_x10_counts_are_checked_before_use(version: int) -> None:
    data = encode_fetch_request(asking(version, topics=[]), version)
    head = 17 if version < 7 else 25 if version < 15 else 21
    for count in (2**31 - 1, -1):
        claim = uvarint(count + 1) if version >= 12 else (count % 2**32).to_bytes(4, "big")
        with pytest.raises(ProtocolError, match="claimed"):
            decode_fetch_request(data[:head] + claim + bytes(10), 0, version)
        topic = (b"\x00\x01t" if version < 12 else b"\x02t") if version < 13 else TOPIC_ID
        one = b"\x02" if version >= 12 else b"\x00\x00\x00\x01"
        with pytest.raises(ProtocolError, match="claimed"):
            decode_fetch_request(data[:head] + one + topic + claim + bytes(30), 0, version)


def told(version: int, *partitions: FetchPartitionResponse, **rest: object) -> FetchResponse:
    name, topic_id = ("t", ZERO_UUID) if version < 13 else ("", TOPIC_ID)
    return FetchResponse([FetchTopicResponse(name, topic_id, list(partitions))], **rest)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_record_buffers_are_passed_through_and_sliced_out(version: int) -> None:
    first, second, third = bytearray(b"one"), memoryview(b"two"), b"three"
    rows = (
        FetchPartitionResponse(0, 0, 10, 10, 0 if version > 4 else -1, records=first),
        FetchPartitionResponse(1, 0, 10, 10, 0 if version > 4 else -1, records=[second, third]),
        FetchPartitionResponse(2, 1, records=b""),
        FetchPartitionResponse(3, 1, records=None),
    )
    buffers = encode_fetch_response(told(version, *rows), version)
    assert all(any(buffer is mine for buffer in buffers) for mine in (first, second, third))
    frame = bytearray(b"".join(buffers))  # type: ignore[arg-type]
    found = decode_fetch_response(frame, 0, version).topics[0].partitions
    assert [row.records for row in found] == [b"one", b"twothree", b"", None]
    assert isinstance(found[0].records, memoryview) and found[0].records.obj is frame


def test_an_absent_leader_is_left_out() -> None:
    """kafka.md trap 14."""
    data = b"".join(encode_fetch_response(told(12, FetchPartitionResponse(0)), 12))  # type: ignore[arg-type]
    assert data.endswith(b"\x00" + b"\xff" * 4 + b"\x01\x00" + b"\x00\x00")
    assert b"".join(encode_fetch_response(told(12), 12)) == bytes(10) + b"\x02\x02t\x01\x00\x00"  # type: ignore[arg-type]


def test_kip_951_and_kip_595_travel_in_tags() -> None:
    row = FetchPartitionResponse(
        0, 6, current_leader=LeaderIdAndEpoch(0, 0), diverging_epoch=EpochEndOffset(3, 40), records=None
    )
    response = told(16, row, node_endpoints=(NodeEndpoint(0, "host", 9092, "r"),))
    assert decode_fetch_response(b"".join(encode_fetch_response(response, 16)), 0, 16) == response  # type: ignore[arg-type]
    plain = decode_fetch_response(b"".join(encode_fetch_response(told(11, row), 11)), 0, 11)  # type: ignore[arg-type]
    assert plain == told(11, FetchPartitionResponse(0, 6, records=None))


@pytest.mark.parametrize("version", [4, 12])
def test_null_and_no_aborted_transactions_are_different(version: int) -> None:
    for aborted in (None, (), (AbortedTransaction(1, 2), AbortedTransaction(3, 4))):
        response = told(version, FetchPartitionResponse(0, aborted_transactions=aborted))
        data = b"".join(encode_fetch_response(response, version))  # type: ignore[arg-type]
        assert decode_fetch_response(data, 0, version) == response


def test_x10_records_longer_than_the_response_are_refused() -> None:
    data = b"".join(encode_fetch_response(told(12, FetchPartitionResponse(0, records=b"abc")), 12))  # type: ignore[arg-type]
    at = data.index(b"\x04abc")
    for claim in (uvarint(2**31), b"\x7f"):
        with pytest.raises(ProtocolError, match="claimed"):
            decode_fetch_response(data[:at] + claim + data[at + 1 :], 0, 12)
