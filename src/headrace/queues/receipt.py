"""Codec: receipt handles (R56).

A handle says which delivery of which message it was given for, and a MAC over that and the queue's id says that this
cluster gave it. So nobody can guess the handle of a message that he did not receive, use a handle on another queue, or
act with an old one on someone else's delivery.

    u8 version | i32 partition | i64 offset | i32 delivery | i64 lease epoch | topic, utf-8 | 16 bytes of keyed BLAKE2b

as URL-safe base64 without padding, because handles travel in paths (REST) and in JSON (SQS). The queue's id is under
the MAC but not in the handle: the request names the queue. BLAKE2b is a MAC by itself (RFC 7693) and takes a quarter of the
time of HMAC-SHA256, which counts with one receipt made and one checked for each message.
"""

from __future__ import annotations

from binascii import Error, a2b_base64, b2a_base64
from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import NamedTuple

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.queues.commands import Handle

_VERSION = 2
_BODY = Struct(">Biqiq")
_MAC_BYTES = 16
_MAX_TEXT = 1024
"""No handle of ours is longer; SQS allows 1,024 as well."""
_MAX_KEY_BYTES = 64
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_PLAIN = bytes.maketrans(b"-_", b"+/")

_INVALID = Rejected(ErrorKind.RECEIPT_HANDLE_IS_INVALID, "this is not a receipt handle of this queue")


class QueueReceipt(NamedTuple):
    topic: str
    partition: int
    handle: Handle


def encode_receipt(receipt: QueueReceipt, queue_id: str, key: bytes) -> str:
    topic, partition, (offset, delivery, epoch) = receipt
    body = _BODY.pack(_VERSION, partition, offset, delivery, epoch) + topic.encode()
    mac = _keyed(queue_id, key).copy()
    mac.update(body)
    text = b2a_base64(body + mac.digest(), newline=False)
    return text.translate(_URL_SAFE).rstrip(b"=").decode()


def decode_receipt(text: str, queue_id: str, key: bytes) -> QueueReceipt | Rejected:
    if len(text) > _MAX_TEXT:
        return _INVALID
    try:
        raw = a2b_base64(text.encode("ascii").translate(_PLAIN) + b"==")
    except (UnicodeEncodeError, Error):
        return _INVALID
    body = raw[:-_MAC_BYTES]
    mac = _keyed(queue_id, key).copy()
    mac.update(body)
    if len(body) < _BODY.size or not compare_digest(raw[-_MAC_BYTES:], mac.digest()):
        return _INVALID
    version, partition, offset, delivery, epoch = _BODY.unpack_from(body)
    if version != _VERSION:
        return _INVALID
    return QueueReceipt(body[_BODY.size :].decode(), partition, Handle(offset, delivery, epoch))


@lru_cache(maxsize=10_000)
def _keyed(queue_id: str, key: bytes) -> blake2b:
    """The MAC as it stands before the body. The queue's id comes first and with its length, so that no id and body can
    be cut in another place."""
    if len(key) > _MAX_KEY_BYTES:
        key = blake2b(key).digest()
    name = queue_id.encode()
    return blake2b(len(name).to_bytes(4, "big") + name, key=key, digest_size=_MAC_BYTES)
