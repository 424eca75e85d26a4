"""Codec: which of the bytes that come in are a whole request, and whether it sends messages. For the fault that lets a send arrive twice."""

from __future__ import annotations

import re
import struct
from typing import Literal, NamedTuple

PRODUCE = 0
FLEXIBLE_PRODUCE = 9
WITH_TRANSACTIONAL_ID = 3
LARGEST = 1 << 28
_HEADER = re.compile(rb"^([a-zA-Z-]+):[ \t]*(.*?)[ \t]*\r?$", re.MULTILINE)
_REST_SEND = re.compile(rb"POST /(?:queues|topics)/[^/ ?]+/(?:messages|batch|records)[ ?]")
_ACTION = re.compile(rb"(?:^|&)Action=SendMessage")


class Incoming(NamedTuple):
    length: int
    sends: bool
    answered: bool
    """acks=0 is not."""
    correlation: int
    """Of Kafka's; the answer has the same."""


Found = Incoming | Literal["incomplete", "unknown"]


def kafka_request(data: bytes | bytearray) -> Found:
    if len(data) < 12:
        return "incomplete"
    length, key, version, correlation = struct.unpack_from(">ihhi", data)
    if not 8 <= length < LARGEST or not 0 <= key < 128 or not 0 <= version < 32:
        return "unknown"  # the middle of one: what came before was on its way already
    if len(data) < 4 + length:
        return "incomplete"
    sends = key == PRODUCE
    return Incoming(4 + length, sends, not sends or _acks(data, version) != 0, correlation)


def _acks(data: bytes | bytearray, version: int) -> int:
    at = 12 + 2 + max(0, *struct.unpack_from(">h", data, 12))  # behind the client id
    if version >= FLEXIBLE_PRODUCE:
        at = _behind_varint(data, at)[0]  # no tagged fields in a header
        at, length = _behind_varint(data, at)
        at += max(0, length - 1)
    elif version >= WITH_TRANSACTIONAL_ID:
        at += 2 + max(0, *struct.unpack_from(">h", data, at))
    return int(struct.unpack_from(">h", data, at)[0])


def _behind_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return at + 1, value | data[at] << shift


def http_request(data: bytes | bytearray) -> Found:
    if not re.match(rb"[A-Z]{3,7}(?: |$)", data):
        return "unknown" if len(data) > 8 else "incomplete"
    head, end, _ = bytes(data).partition(b"\r\n\r\n")
    if not end:
        return "incomplete"
    headers = {name.lower(): value for name, value in _HEADER.findall(head)}
    if b"transfer-encoding" in headers or b"expect" in headers:
        return "unknown"  # sent bit by bit
    length = len(head) + 4 + int(headers.get(b"content-length") or 0)
    if len(data) < length:
        return "incomplete"
    sends = (
        headers.get(b"x-amz-target", b"").startswith(b"AmazonSQS.SendMessage")
        or _REST_SEND.match(head) is not None
        or _ACTION.search(bytes(data[len(head) + 4 : length])) is not None
    )
    return Incoming(length, sends, True, 0)


def without_answer(data: bytes, correlation: int) -> bytes | None:
    """Kafka's answers without the one to this request; None when it is not among them."""
    at = 0
    while at + 8 <= len(data):
        length, found = struct.unpack_from(">ii", data, at)
        if found == correlation and at + 4 + length <= len(data):
            return data[:at] + data[at + 4 + length :]
        at += 4 + length
    return None
