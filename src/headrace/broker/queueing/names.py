"""Kernel of queueing: names on the log: journal topics, headers that say what is special about a message, message ids.

A queue's message is a record anybody can read with a Kafka client, and a record anybody sends is a message: what is
special about it is in headers, and everything else is ordinary.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from headrace.records.build import Headers, Record

JOURNAL_PREFIX = "__queue."
DELAYS_PREFIX = "delays/"
"""What waits in a topic is a queue under a name that no queue can have."""

DELAY_MS = "headrace-delay-ms"
DELIVER_AT = "headrace-deliver-at"
"""Wall clock in milliseconds; wins over the delay."""
DELAY_LEVEL = "headrace-delay-level"
GROUP = "headrace-group"
DEDUP_ID = "headrace-dedup-id"
PRIORITY = "headrace-priority"
TTL_MS = "headrace-ttl-ms"
TENANT = "headrace-tenant"
ATTRIBUTE_TYPES = "headrace-attribute-types"
"""JSON: SQS message attributes that are not plain strings, by name."""
TRACE = "headrace-trace"
DEAD_REASON = "headrace-dead-reason"
DEAD_SOURCE = "headrace-dead-source"
DEAD_DELIVERIES = "headrace-dead-deliveries"
DEAD_DETAIL = "headrace-dead-detail"
DEAD_ID = "headrace-dead-id"
"""A dead letter keeps the message id of its life; redriven it is a new message (SQS)."""
DELAYED = "headrace-delayed"
"""On a record that had to wait: the offset at which it waited."""
DEAD_PREFIX = "headrace-dead-"
EDITED_BY = "headrace-edited-by"
EDITED_FROM = "headrace-edited-from"
"""topic/partition/offset of the record as it was before."""
MOVED = "headrace-moved"
"""Redriven: its deduplication id was used up by its first life."""
OWN_PREFIX = "headrace-"
_ID_BYTES = 36


def journal_topic(topic: str) -> str:
    return JOURNAL_PREFIX + topic


def data_topic(journal: str) -> str | None:
    """The topic a journal belongs to; None when it is no journal."""
    return journal[len(JOURNAL_PREFIX) :] if journal.startswith(JOURNAL_PREFIX) else None


def header(headers: Headers, name: str) -> bytes | None:
    for known, value in headers:
        if known == name:
            return value
    return None


def said(record: Record, name: str) -> str:
    """What a header says, as text; empty: nothing."""
    return (header(record.headers, name) or b"").decode(errors="replace")


def own_headers(record: Record) -> Headers:
    """What a record says about itself in headers of ours."""
    return tuple([one for one in record.headers if one[0].startswith(OWN_PREFIX)]) if record.headers else ()


class MessageId(NamedTuple):
    """Where a message lies, and which topic's life it belongs to; as a UUID, so that it looks like SQS's."""

    topic_id: bytes
    partition: int
    offset: int


def encode_message_id(topic_id: bytes, partition: int, offset: int) -> str:
    # Not through uuid.UUID, which costs six times as much: one is made for each message.
    text = f"{topic_id[:6].hex()}{partition:06x}{offset:014x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def message_id_of(record: Record, topic_id: bytes, partition: int) -> str:
    if record.headers:
        kept = header(record.headers, DEAD_ID)
        if kept is not None and len(kept) == _ID_BYTES and kept.isascii():
            return kept.decode()
    return encode_message_id(topic_id, partition, record.offset)


def decode_message_id(text: str) -> MessageId | None:
    """`topic_id` has only its first six bytes; None when the text is no id of ours."""
    try:
        raw = UUID(text).bytes
    except ValueError:
        return None
    return MessageId(raw[:6], int.from_bytes(raw[6:9], "big"), int.from_bytes(raw[9:], "big"))
