"""Codec: receipt handles (R56).

A handle says which delivery of which message it was given for, and a MAC over that and the queue's id says that this
cluster gave it. So nobody can guess the handle of a message that he did not receive, use a handle on another queue, or
act with an old one on someone else's delivery.

    u8 version | i32 partition | i64 offset | i32 delivery | i64 lease epoch | topic, utf-8 | 16 bytes of HMAC-SHA256

as URL-safe base64 without padding, because handles travel in paths (REST) and in JSON (SQS). The queue's id is under
the MAC but not in the handle: the request names the queue.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from struct import Struct
from typing import NamedTuple

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.queues.commands import Handle

_VERSION = 1
_BODY = Struct(">Biqiq")
_MAC_BYTES = 16
_MAX_TEXT = 1024
"""No handle of ours is longer; SQS allows 1,024 as well."""

_INVALID = Rejected(ErrorKind.RECEIPT_HANDLE_IS_INVALID, "this is not a receipt handle of this queue")


class Receipt(NamedTuple):
    topic: str
    partition: int
    handle: Handle


def encode_receipt(receipt: Receipt, queue_id: str, key: bytes) -> str:
    offset, delivery, epoch = receipt.handle
    body = _BODY.pack(_VERSION, receipt.partition, offset, delivery, epoch) + receipt.topic.encode()
    return urlsafe_b64encode(body + _mac(body, queue_id, key)).rstrip(b"=").decode()


def decode_receipt(text: str, queue_id: str, key: bytes) -> Receipt | Rejected:
    if len(text) > _MAX_TEXT:
        return _INVALID
    try:
        raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (UnicodeEncodeError, binascii.Error, ValueError):
        return _INVALID
    body, mac = raw[:-_MAC_BYTES], raw[-_MAC_BYTES:]
    if len(body) < _BODY.size or not hmac.compare_digest(mac, _mac(body, queue_id, key)):
        return _INVALID
    version, partition, offset, delivery, epoch = _BODY.unpack_from(body)
    if version != _VERSION:
        return _INVALID
    return Receipt(body[_BODY.size :].decode(), partition, Handle(offset, delivery, epoch))


def _mac(body: bytes, queue_id: str, key: bytes) -> bytes:
    # The queue's id comes first and with its length, so that no id and body can be cut in another place.
    name = queue_id.encode()
    return hmac.digest(key, len(name).to_bytes(4, "big") + name + body, "sha256")[:_MAC_BYTES]
