"""Codec: messages as requests: the value as it is, a JSON envelope, or CloudEvents 1.0 (binary, structured, batch).

A record that is a CloudEvent already (Kafka binding: `ce_…` headers) keeps its own attributes. Whatever a producer wrote
into headers is percent-encoded or left out, so that it can not add a header or end one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from headrace.core.limits import KIB
from headrace.core.moments import rfc3339
from headrace.core.trace_context import TRACEPARENT, context_of
from headrace.records.build import Headers, Record
from headrace.records.shown import shown_bytes, shown_record

Form = Literal["raw", "json", "cloudevents", "cloudevents-structured"]

JSON = "application/json"
CLOUD_EVENT = "application/cloudevents+json"
CLOUD_EVENTS = "application/cloudevents-batch+json"
MAX_HEADER_BYTES = 8 * KIB
"""Of what a producer wrote; more is left out."""
OWN_PREFIX = "headrace-"
MESSAGE_TYPE = "headrace.message"
BATCH_TYPE = "headrace.batch"
_TOKEN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
# CloudEvents, HTTP binding 3.1.3.2: space, quote, percent and everything outside of printable ASCII is encoded.
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')

_JUDGED = ("", "specversion", "datacontenttype", "data")
"""Attributes a producer can't set by a header: they say how to read the rest."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class PushMessage(NamedTuple):
    """One message on its way out."""

    id: str
    topic: str
    partition: int
    attempt: int
    record: Record


class OutgoingPost(NamedTuple):
    id: str
    """What `webhook-id` says: the same for each attempt."""
    headers: dict[str, str]
    body: bytes


def one(form: Form, message: PushMessage) -> OutgoingPost:
    if form == "raw":
        return OutgoingPost(message.id, _raw_headers(message), message.record.value or b"")
    if form == "json":
        document = {
            "type": MESSAGE_TYPE,
            "timestamp": _time(message.record.timestamp),
            "data": _shown(message),
        }
        return OutgoingPost(message.id, {"content-type": JSON}, _encode(document))
    event = _event(message)
    if form == "cloudevents-structured":
        return OutgoingPost(
            message.id, {"content-type": CLOUD_EVENT}, _encode(_structured(event, message.record))
        )
    headers = {
        f"ce-{name}": quote(value, safe=_SAFE) for name, value in event.items() if name != "datacontenttype"
    }
    headers["content-type"] = event["datacontenttype"]
    return OutgoingPost(message.id, headers, message.record.value or b"")


def many(form: Form, messages: Sequence[PushMessage]) -> OutgoingPost:
    """A batch. Its id names what is in it, so the same messages tried again are the same batch."""
    batch_id = f"{messages[0].id}.{len(messages)}"
    if form in ("cloudevents", "cloudevents-structured"):
        events = [_structured(_event(message), message.record) for message in messages]
        return OutgoingPost(batch_id, {"content-type": CLOUD_EVENTS}, _encode(events))
    document = {
        "type": BATCH_TYPE,
        "timestamp": _time(messages[-1].record.timestamp),
        "data": [_shown(message) for message in messages],
    }
    return OutgoingPost(batch_id, {"content-type": JSON}, _encode(document))


def failures_in(body: bytes, ids: Sequence[str]) -> frozenset[str]:
    """Of a batch that was taken in part: `{"failures": ["<message id>", …]}` in the body of a 2xx. Unknown ids are ignored."""
    if b'"failures"' not in body:
        return frozenset()
    try:
        document = _decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return frozenset()
    listed = document.get("failures") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        return frozenset()
    return frozenset(entry for entry in listed if isinstance(entry, str)) & frozenset(ids)


def trace_headers(messages: Sequence[PushMessage]) -> dict[str, str]:
    """A request is part of one trace: that of its messages, when they are all of the same."""
    contexts = {context_of(message.record.headers) for message in messages}
    context = contexts.pop() if len(contexts) == 1 else None
    return {} if context is None else context.http_headers()


def size_of(record: Record) -> int:
    return (
        len(record.value or b"")
        + len(record.key or b"")
        + sum(len(n) + len(v or b"") for n, v in record.headers)
    )


# -- plain -----------------------------------------------------------------------------------------------------------------


def _raw_headers(message: PushMessage) -> dict[str, str]:
    record = message.record
    headers = {
        "content-type": _content_type(record),
        "headrace-topic": message.topic,
        "headrace-partition": str(message.partition),
        "headrace-offset": str(record.offset),
        "headrace-time": _time(record.timestamp),
        "headrace-attempt": str(message.attempt),
    }
    room = MAX_HEADER_BYTES
    if record.key is not None:
        key = quote(record.key[:MAX_HEADER_BYTES], safe=_SAFE)
        headers["headrace-key"] = key
        room -= len(key)
    for name, value in record.headers:
        shown = quote(value or b"", safe=_SAFE) if value is None or len(value) <= room else ""
        plain = name.lower()
        room -= len(plain) + len(shown)
        if room < 0:
            break
        if plain and set(plain) <= _TOKEN and not plain.startswith(OWN_PREFIX) and plain != "content-type":
            headers[f"headrace-header-{plain}"] = shown
    return headers


def _shown(message: PushMessage) -> dict[str, Any]:
    record = message.record
    return {
        "message_id": message.id,
        "attempt": message.attempt,
        **shown_record(message.topic, message.partition, record),
    }


def _content_type(record: Record) -> str:
    """What the producer says, if it can be a header; otherwise what the bytes look like."""
    given = _header(record.headers, "content-type") or _header(record.headers, "ce_datacontenttype")
    if given is not None and given.isascii() and given.isprintable() and len(given) <= 200:
        return given
    value = record.value or b""
    if value[:1] in (b"{", b"[", b'"') or value in (b"true", b"false", b"null"):
        return JSON
    return "application/octet-stream" if isinstance(shown_bytes(value), dict) else "text/plain; charset=utf-8"


def _header(headers: Headers, name: str) -> str | None:
    for known, value in headers:
        if known.lower() == name and value is not None:
            return value.decode("utf-8", "replace")
    return None


def _time(wall_ms: int) -> str:
    return rfc3339(wall_ms) or "1970-01-01T00:00:00.000Z"


# -- CloudEvents -----------------------------------------------------------------------------------------------------------


def _event(message: PushMessage) -> dict[str, str]:
    record = message.record
    event = {
        "specversion": "1.0",
        "id": message.id,
        "source": f"/topics/{message.topic}/partitions/{message.partition}",
        "type": MESSAGE_TYPE,
        "time": _time(record.timestamp),
        "datacontenttype": _content_type(record),
        "sequence": str(record.offset),
    }
    if isinstance(key := shown_bytes(record.key), str):
        event["partitionkey"] = key[:MAX_HEADER_BYTES]
    room = MAX_HEADER_BYTES
    for name, value in record.headers:
        attribute = name[3:].lower() if name.startswith("ce_") else ""
        if attribute in _JUDGED or not attribute.isascii() or not attribute.isalnum() or value is None:
            continue
        room -= len(value)
        if room < 0:
            break
        event[attribute] = value.decode("utf-8", "replace")
    # CloudEvents' extension for distributed tracing: the event's own context, or the record's.
    context = context_of(record.headers)
    if context is not None and TRACEPARENT not in event:
        event |= context.http_headers()
    return event


def _structured(event: dict[str, str], record: Record) -> dict[str, Any]:
    document: dict[str, Any] = dict(event)
    value = record.value
    if value is None:
        return document
    if "json" in event["datacontenttype"]:
        try:
            _decode(value)
            return {**document, "data": msgspec.Raw(value)}
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            document["datacontenttype"] = "application/octet-stream"
    text = shown_bytes(value)
    if isinstance(text, dict):
        document["data_base64"] = text["base64"]
    else:
        document["data"] = text
    return document
