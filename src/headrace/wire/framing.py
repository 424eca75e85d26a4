"""Codec: what surrounds a message on the wire: a 4-byte length and a header.

    request    length int32 | key int16 | version int16 | correlation int32 | client id | [tags] | body
    response   length int32 | correlation int32 | [tags] | body

The tags are there from header v2 (requests) and v1 (responses); the client id is never compact.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from headrace.core.ports import Buffer
from headrace.core.stored import Piece
from headrace.core.tuples import new_tuple
from headrace.wire.api import API, ApiKey, request_header_version, response_header_version
from headrace.wire.primitives import MALFORMED, ProtocolError, skip_tags

_REQUEST = Struct(">hhih")
_REQUEST_FRAME = Struct(">ihhih")
_RESPONSE = Struct(">ii")
_RESPONSE_WITH_TAGS = Struct(">iix")
_CORRELATION = Struct(">i")
_FIRST_FLEXIBLE = {key: spec.flexible_from for key, spec in API.items()}
_NEVER = 1 << 16
_FIRST_TAGGED_RESPONSE = {
    key: _NEVER if key == ApiKey.API_VERSIONS else spec.flexible_from for key, spec in API.items()
}
"""`response_header_version` as a table: this is asked for every answer."""


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a frame (without its length) and where the body begins.

    The key and version may be unknown to us: whoever dispatches decides what to answer."""
    try:
        key, version, correlation_id, size = _REQUEST.unpack_from(frame, 0)
        client_id = None
        pos = 10
        if size >= 0:
            pos += size
            if pos > len(frame):
                raise ProtocolError("the client id is longer than the request")
            client_id = str(frame[10:pos], "utf-8")
        elif size != -1:
            raise ProtocolError("the client id has a negative length")
        if version >= _FIRST_FLEXIBLE.get(key, _NEVER):
            if frame[pos]:
                pos = skip_tags(frame, pos)
            else:
                pos += 1
    except MALFORMED as error:
        raise ProtocolError(f"request header: {error}") from None
    return new_tuple(RequestHeader, (key, version, correlation_id, client_id)), pos


def encode_request_frame(header: RequestHeader, body: Sequence[Buffer]) -> list[Buffer]:
    """A whole request frame, its length in front; the buffers of the body are not copied."""
    key, version, correlation_id, client_id = header
    name = b"" if client_id is None else client_id.encode()
    tags = b"\x00" if request_header_version(key, version) == 2 else b""
    length = 10 + len(name) + len(tags) + sum(map(len, body))
    size = -1 if client_id is None else len(name)
    return [_REQUEST_FRAME.pack(length, key, version, correlation_id, size) + name + tags, *body]


def encode_response(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """A whole response frame, its length in front."""
    if version >= _FIRST_TAGGED_RESPONSE.get(key, _NEVER):
        return _RESPONSE_WITH_TAGS.pack(len(body) + 5, correlation_id) + body
    return _RESPONSE.pack(len(body) + 4, correlation_id) + body


def encode_response_frame(key: int, version: int, correlation_id: int, body: Sequence[Piece]) -> list[Piece]:
    """As `encode_response`, for a body in several buffers that should not be copied, or that lies in a file."""
    length = sum(map(len, body))
    if version >= _FIRST_TAGGED_RESPONSE.get(key, _NEVER):
        return [_RESPONSE_WITH_TAGS.pack(length + 5, correlation_id), *body]
    return [_RESPONSE.pack(length + 4, correlation_id), *body]


def decode_response_header(frame: Buffer, key: int, version: int) -> tuple[int, int]:
    """The correlation id of a frame (without its length) and where the body begins."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame, 0)
        pos = 4
        if response_header_version(key, version):
            pos = skip_tags(frame, 4) if frame[4] else 5
    except MALFORMED as error:
        raise ProtocolError(f"response header: {error}") from None
    return correlation_id, pos
