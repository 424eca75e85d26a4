"""Frames and headers."""

from __future__ import annotations

import pytest
from raw_client import encode_request

from headrace.wire.api import ApiKey
from headrace.wire.framing import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_frame,
    encode_response,
    encode_response_frame,
)
from headrace.wire.primitives import ProtocolError

CLASSIC = b"\x00\x0c\x00\x03\x00\x00\x00\x07\x00\x02me"
FLEXIBLE = b"\x00\x0c\x00\x04\x00\x00\x00\x07\x00\x02me\x00"


@pytest.mark.parametrize(("frame", "version"), [(CLASSIC, 3), (FLEXIBLE, 4)])
def test_a_request_header_both_ways(frame: bytes, version: int) -> None:
    header = RequestHeader(ApiKey.HEARTBEAT, version, 7, "me")
    for buffer in (frame, bytearray(frame), memoryview(frame)):
        assert decode_request_header(buffer) == (header, len(frame))
    assert encode_request(header, b"body") == (len(frame) + 4).to_bytes(4, "big") + frame + b"body"


def test_the_client_id_may_be_null_or_empty() -> None:
    for client_id, data in ((None, b"\xff\xff"), ("", b"\x00\x00")):
        frame = CLASSIC[:8] + data
        assert decode_request_header(frame)[0].client_id == client_id
        assert encode_request(RequestHeader(12, 3, 7, client_id), b"")[4:] == frame


def test_tags_in_a_header_are_skipped() -> None:
    assert decode_request_header(FLEXIBLE[:-1] + b"\x01\x05\x02xxbody")[1] == len(FLEXIBLE) + 4


def test_an_unknown_key_or_version_still_has_a_readable_header() -> None:
    header, position = decode_request_header(b"\x27\x0f\x00\x63\x00\x00\x00\x01\x00\x01c")
    assert header == RequestHeader(9999, 99, 1, "c") and position == 11
    # KIP-511: a future ApiVersions request has the flexible header.
    assert decode_request_header(b"\x00\x12\x00\x63\x00\x00\x00\x01\x00\x01c\x00")[1] == 12


@pytest.mark.parametrize("frame", [CLASSIC, FLEXIBLE, FLEXIBLE[:-1] + b"\x01\x05\x02xx"])
def test_a_cut_header_is_refused(frame: bytes) -> None:
    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            decode_request_header(frame[:size])


def test_bad_client_ids_are_refused() -> None:
    for client_id in (b"\xff\xfe", b"\x7f\xffab", b"\x00\x01\xff"):
        with pytest.raises(ProtocolError):
            decode_request_header(CLASSIC[:8] + client_id)


def test_responses_both_ways() -> None:
    classic = encode_response(ApiKey.HEARTBEAT, 3, 7, b"body")
    assert classic == b"\x00\x00\x00\x08\x00\x00\x00\x07body"
    flexible = encode_response(ApiKey.HEARTBEAT, 4, 7, b"body")
    assert flexible == b"\x00\x00\x00\x09\x00\x00\x00\x07\x00body"
    assert decode_response_header(classic[4:], ApiKey.HEARTBEAT, 3) == (7, 4)
    assert decode_response_header(flexible[4:], ApiKey.HEARTBEAT, 4) == (7, 5)
    for version in (3, 4):
        with pytest.raises(ProtocolError):
            decode_response_header(b"\x00\x00\x00" + b"\x00" * (version - 3), ApiKey.HEARTBEAT, version)


def test_bodies_in_several_buffers_are_not_copied() -> None:
    records = memoryview(b"records")
    for version, whole in (
        (11, encode_response(1, 11, 7, b"ab" + records)),
        (12, encode_response(1, 12, 7, b"ab" + records)),
    ):
        frame = encode_response_frame(1, version, 7, [b"ab", records])
        assert b"".join(frame) == whole and frame[-1] is records  # type: ignore[arg-type]
    header = RequestHeader(0, 9, 7, None)
    request = encode_request_frame(header, [b"ab", records])
    assert b"".join(request) == encode_request(header, b"ab" + records) and request[-1] is records
