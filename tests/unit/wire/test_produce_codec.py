"""Produce by hand: bytes, zero copy, refusals. Values and versions at large are in tests/property."""

from __future__ import annotations

import pytest

from headrace.core.ids import ZERO_UUID
from headrace.wire.leader_hint import LeaderIdAndEpoch, NodeEndpoint
from headrace.wire.primitives import ProtocolError, uvarint
from headrace.wire.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
    RecordError,
    decode_produce_request,
    decode_produce_response,
    encode_produce_request,
    encode_produce_response,
)

TOPIC_ID = bytes(range(16))
V9 = b"\x00\xff\xff\x00\x00\x00\x64\x02\x02t\x02\x00\x00\x00\x05\x04abc\x00\x00\x00"
V3 = (
    b"\xff\xff\xff\xff\x00\x00\x00\x64"
    b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x05\x00\x00\x00\x03abc"
)
REQUEST = ProduceRequest(None, -1, 100, [ProduceTopic("t", ZERO_UUID, [ProducePartition(5, b"abc")])])


@pytest.mark.parametrize(("version", "data"), [(3, V3), (8, V3), (9, V9), (12, V9)])
def test_request_bytes_both_ways(version: int, data: bytes) -> None:
    assert decode_produce_request(data, 0, version) == REQUEST
    assert decode_produce_request(memoryview(b"head" + data), 4, version) == REQUEST
    assert b"".join(encode_produce_request(REQUEST, version)) == data


def test_v13_has_topic_ids() -> None:
    data = V9[:8] + TOPIC_ID + V9[10:]
    request = REQUEST._replace(topics=[ProduceTopic("", TOPIC_ID, REQUEST.topics[0].partitions)])
    assert decode_produce_request(data, 0, 13) == request
    assert b"".join(encode_produce_request(request, 13)) == data


@pytest.mark.parametrize(("version", "data"), [(3, V3), (9, V9)])
def test_records_are_a_writable_slice_of_the_frame(version: int, data: bytes) -> None:
    frame = bytearray(data)
    records = decode_produce_request(frame, 0, version).topics[0].partitions[0].records
    assert isinstance(records, memoryview)
    records[0:1] = b"X"
    assert b"Xbc" in frame


def test_records_of_a_request_to_send_are_not_copied() -> None:
    records = memoryview(b"abc" * 1000)
    request = ProduceRequest("tx", 1, 1, [ProduceTopic("t", ZERO_UUID, [ProducePartition(0, records)])])
    assert any(buffer is records for buffer in encode_produce_request(request, 9))


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_every_length_of_the_length(size: int) -> None:
    request = ProduceRequest(None, 1, 1, [ProduceTopic("t", ZERO_UUID, [ProducePartition(0, bytes(size))])])
    assert decode_produce_request(b"".join(encode_produce_request(request, 9)), 0, 9) == request


@pytest.mark.parametrize("version", [0, 1, 2, 14])
def test_versions_that_are_not_served_are_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match="not served"):
        decode_produce_request(V3, 0, version)


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (9, V9[:7] + uvarint(2**31) + bytes(12)),
        (9, V9[:10] + uvarint(2**31) + bytes(12)),
        (9, V9[:15] + uvarint(2**31) + bytes(12)),
        (9, V9[:7] + b"\x00\x00"),
        (9, V9[:8] + b"\x00" + V9[10:]),
        (9, V9[:10] + b"\x00\x00\x00"),
        (3, V3[:8] + b"\x7f\xff\xff\xff" + V3[12:]),
        (3, V3[:8] + b"\xff\xff\xff\xff"),
        (3, V3[:12] + b"\xff\xff" + V3[14:]),
        (3, V3[:15] + b"\x7f\xff\xff\xff" + V3[19:]),
        (3, V3[:23] + b"\x7f\xff\xff\xff" + V3[27:]),
        (3, V3[:23] + b"\xff\xff\xff\xfe"),
    ],
)
def test_x10_lengths_are_checked_before_use(version: int, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_produce_request(data, 0, version)


def answer(*partitions: ProducePartitionResponse, **rest: object) -> ProduceResponse:
    return ProduceResponse([ProduceTopicResponse("t", ZERO_UUID, list(partitions))], **rest)  # type: ignore[arg-type]


def test_a_plain_response_has_no_tags() -> None:
    """kafka.md trap 14: an absent leader is -1/-1 and is left out; 0/0 would name broker 0."""
    data = encode_produce_response(answer(ProducePartitionResponse(5, 0, 9, -1, 2)), 10)
    numbers = b"\x00\x00\x00\x05\x00\x00" + (9).to_bytes(8, "big") + b"\xff" * 8 + (2).to_bytes(8, "big")
    assert data == b"\x02\x02t\x02" + numbers + b"\x01\x00\x00\x00" + b"\x00\x00\x00\x00\x00"


def test_kip_951_a_refusal_names_the_leader_and_where_it_listens() -> None:
    response = answer(
        ProducePartitionResponse(5, 6, current_leader=LeaderIdAndEpoch(0, 0)),
        node_endpoints=(NodeEndpoint(0, "host", 9092),),
    )
    assert decode_produce_response(encode_produce_response(response, 10), 0, 10) == response
    before = decode_produce_response(encode_produce_response(response, 9), 0, 9)
    assert before == answer(ProducePartitionResponse(5, 6))


@pytest.mark.parametrize("version", [8, 9])
def test_record_errors_since_v8(version: int) -> None:
    response = answer(
        ProducePartitionResponse(0, 87, record_errors=(RecordError(2, "no key"),), error_message="m")
    )
    assert decode_produce_response(encode_produce_response(response, version), 0, version) == response
    assert decode_produce_response(encode_produce_response(response, 7), 0, 7) == answer(
        ProducePartitionResponse(0, 87)
    )
