"""The general codec: what versions carry, nulls, tagged fields, limits, and no copies of record data."""

from __future__ import annotations

import dataclasses

import pytest

from headrace.wire.codec import decode, encode, encode_buffers, versions
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from headrace.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.wire.messages.heartbeat import HeartbeatRequest
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.wire.messages.share_fetch import PartitionData, ShareFetchableTopicResponse, ShareFetchResponse
from headrace.wire.primitives import ProtocolError, uvarint


def test_bytes_of_a_classic_and_a_flexible_version() -> None:
    beat = HeartbeatRequest("g", 3, "m", "i")
    assert encode(beat, 0) == b"\x00\x01g\x00\x00\x00\x03\x00\x01m"
    assert encode(beat, 3) == b"\x00\x01g\x00\x00\x00\x03\x00\x01m\x00\x01i"
    assert encode(beat, 4) == b"\x02g\x00\x00\x00\x03\x02m\x02i\x00"


def test_a_field_the_version_does_not_carry_is_dropped_and_comes_back_as_its_default() -> None:
    beat = HeartbeatRequest("g", 3, "m", "instance")
    assert decode(HeartbeatRequest, 2, encode(beat, 2)) == HeartbeatRequest("g", 3, "m", None)
    assert decode(MetadataRequest, 0, b"\x00\x00\x00\x00").allow_auto_topic_creation is True


def test_null_and_empty_are_different() -> None:
    assert encode(MetadataRequest(None), 1) == b"\xff\xff\xff\xff"
    assert encode(MetadataRequest([]), 1) == b"\x00\x00\x00\x00"
    assert decode(MetadataRequest, 12, encode(MetadataRequest(None), 12)).topics is None
    assert decode(MetadataRequest, 12, encode(MetadataRequest([]), 12)).topics == []


def test_null_where_the_version_has_none_is_refused() -> None:
    with pytest.raises(ProtocolError, match="topics"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(ProtocolError, match="group_id"):
        decode(HeartbeatRequest, 4, b"\x00\x00\x00\x00\x03\x02m\x02i\x00")
    with pytest.raises(ProtocolError, match="name"):
        decode(MetadataRequest, 1, b"\x00\x00\x00\x01\xff\xfe")


def test_kip_893_a_nullable_struct_is_announced_by_a_byte() -> None:
    absent = encode(ConsumerGroupHeartbeatResponse(assignment=None), 0)
    nothing = encode(ConsumerGroupHeartbeatResponse(assignment=Assignment()), 0)
    assert absent[-2:] == b"\xff\x00"
    assert nothing[-4:] == b"\x01\x01\x00\x00"
    assert decode(ConsumerGroupHeartbeatResponse, 0, absent).assignment is None
    assert decode(ConsumerGroupHeartbeatResponse, 0, nothing).assignment == Assignment([])
    full = ConsumerGroupHeartbeatResponse(assignment=Assignment([TopicPartitions(bytes(16), [1, 2])]))
    assert decode(ConsumerGroupHeartbeatResponse, 1, encode(full, 1)) == full
    with pytest.raises(ProtocolError, match="neither present nor null"):
        decode(ConsumerGroupHeartbeatResponse, 0, absent[:-2] + b"\x02\x00")


def test_tagged_fields_are_written_only_when_they_differ_from_the_default() -> None:
    assert encode(ApiVersionsResponse(), 3) == b"\x00\x00\x01\x00\x00\x00\x00\x00"
    told = ApiVersionsResponse(
        finalized_features_epoch=5, finalized_features=[FinalizedFeatureKey("group.version", 1, 1)]
    )
    assert encode(told, 3)[7:] == (
        b"\x02" + b"\x01\x08" + (5).to_bytes(8, "big") + b"\x02\x14\x02\x0egroup.version\x00\x01\x00\x01\x00"
    )
    assert decode(ApiVersionsResponse, 3, encode(told, 3)) == told


def test_unknown_tags_are_skipped_beside_known_ones() -> None:
    plain = encode(ApiVersionsResponse(), 3)
    known = b"\x01\x08" + (9).to_bytes(8, "big")
    found = decode(ApiVersionsResponse, 3, plain[:-1] + b"\x03\x63\x02xx" + known + b"\x80\x01\x00")
    assert found == ApiVersionsResponse(finalized_features_epoch=9)
    client = encode(ApiVersionsRequest("a", "1"), 3)
    assert decode(ApiVersionsRequest, 3, client[:-1] + b"\x01\x07\x03abc") == ApiVersionsRequest("a", "1")


def test_x10_tag_bombs_are_refused() -> None:
    plain = encode(ApiVersionsResponse(), 3)[:-1]
    for bomb in (
        uvarint(2**31 - 1) + b"\x01\x00" * 10,
        uvarint(5000) + b"\x63\x00" * 5000,
        b"\x01\x63\xff\xff\xff\xff\x07",
        b"\x01\x01\xff\xff\xff\xff\x07",
    ):
        with pytest.raises(ProtocolError):
            decode(ApiVersionsResponse, 3, plain + bomb)


def test_a_tagged_field_must_have_the_length_it_says() -> None:
    plain = encode(ApiVersionsResponse(), 3)[:-1]
    with pytest.raises(ProtocolError, match="another length"):
        decode(ApiVersionsResponse, 3, plain + b"\x01\x01\x09" + bytes(9))
    with pytest.raises(ProtocolError, match="another length"):
        decode(ApiVersionsResponse, 3, plain + b"\x01\x01\x07" + bytes(8))


@pytest.mark.parametrize("version", [1, 9])
def test_x10_an_array_longer_than_the_message_is_refused_at_once(version: int) -> None:
    """X10: `[2^31-1]` in 20 bytes."""
    count = b"\x7f\xff\xff\xff" if version == 1 else uvarint(2**31)
    with pytest.raises(ProtocolError, match="2147483647 elements are claimed"):
        decode(MetadataRequest, version, count + bytes(16))


def test_the_count_is_weighed_with_the_smallest_element() -> None:
    # 10 topics of two bytes each would need 20 bytes; 19 are there.
    with pytest.raises(ProtocolError, match="10 elements are claimed, 19 bytes"):
        decode(MetadataRequest, 1, (10).to_bytes(4, "big") + bytes(19))


def test_long_values_take_longer_lengths() -> None:
    request = MetadataRequest([MetadataRequestTopic(name="t" * 300) for _ in range(200)])
    assert decode(MetadataRequest, 9, encode(request, 9)) == request


def test_what_does_not_fit_can_not_be_said() -> None:
    with pytest.raises(ProtocolError, match="HeartbeatRequest v0"):
        encode(HeartbeatRequest("g" * 40_000), 0)
    with pytest.raises(ProtocolError):
        encode(HeartbeatRequest("g", 2**31), 0)
    with pytest.raises(ProtocolError):
        encode(HeartbeatRequest("\ud800"), 4)


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_an_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match="has no version"):
        decode(HeartbeatRequest, version, b"")
    with pytest.raises(ProtocolError, match="has no version"):
        encode(HeartbeatRequest(), version)


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ProtocolError, match="utf-8"):
        decode(HeartbeatRequest, 4, b"\x02\xff\x00\x00\x00\x03\x02m\x02i\x00")


def test_record_data_is_not_copied() -> None:
    records = bytearray(b"batch" * 100)
    partition = PartitionData(partition_index=1, records=records)
    response = ShareFetchResponse(responses=[ShareFetchableTopicResponse(bytes(16), [partition])])
    buffers = encode_buffers(response, 1)
    assert any(buffer is records for buffer in buffers)
    frame = bytearray(b"".join(buffers))
    found = decode(ShareFetchResponse, 1, frame).responses[0].partitions[0].records
    assert isinstance(found, memoryview)
    assert found.obj is frame and found == records


def test_messages_are_dataclasses_with_slots() -> None:
    first, second = MetadataResponse(), MetadataResponse()
    first.topics.append(MetadataResponse())  # type: ignore[arg-type]
    assert second.topics == []
    assert dataclasses.replace(second, cluster_id="c").cluster_id == "c"
    assert second != first and second == MetadataResponse() and second != 3
    assert repr(HeartbeatRequest("g")).startswith("HeartbeatRequest(group_id='g', generation_id=0")
    with pytest.raises(AttributeError):
        second.no_such_field = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        hash(second)
    with pytest.raises(TypeError, match="unexpected keyword"):
        HeartbeatRequest(no_such_field=1)  # type: ignore[call-arg]


def test_versions_tells_what_the_codec_speaks() -> None:
    assert versions(HeartbeatRequest) == range(5)
