"""Codec: the data path: publishing to topics and reading them, sending to queues and consuming them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headrace.http.contract import DURATION, OFFSET, TIME, Contract, Param, one_of, whole

Bytes = Any
"""A text, any JSON, or {"base64": "…"} for bytes that are not text."""

MOMENT = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
MILLISECONDS = Annotated[int, Meta(ge=0, le=2**53)]


class NewRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A text or any JSON as `key` and `value`; {"base64": "…"} for bytes that are not text."""

    value: Bytes = None
    key: Bytes = None
    headers: dict[str, Bytes] = {}
    timestamp: Annotated[int, Meta(ge=0, le=253402300799999)] | str | None = None
    """A time such as 2026-11-01T12:00:00Z, or milliseconds since 1970."""
    timestamp_ms: Annotated[int, Meta(ge=0, le=253402300799999)] | None = None
    delay: Annotated[str, Meta(pattern="^[0-9]{1,9}(ms|s|m|h|d)?$")] | None = None
    deliver_at: Annotated[int, Meta(ge=0, le=253402300799999)] | None = None
    ttl: Annotated[str, Meta(pattern="^[0-9]{1,9}(ms|s|m|h|d)?$")] | None = None
    priority: Annotated[int, Meta(ge=0, le=9)] | None = None
    group: str | None = None
    tag: str | None = None


class NewRecords(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    records: Annotated[list[NewRecord], Meta(min_length=1, max_length=1_000)]


class Published(msgspec.Struct, kw_only=True):
    partition: int
    offset: int
    message_id: str
    duplicate: bool
    """The Idempotency-Key was there already: this is where the first one is."""


class PublishedRecords(msgspec.Struct, kw_only=True):
    topic: str
    records: list[Published]


class Whereabouts(msgspec.Struct, kw_only=True):
    topic: str
    partition: int
    offset: int


class ShownRecord(Whereabouts, kw_only=True):
    timestamp: MOMENT | None
    timestamp_ms: int
    key: Bytes
    value: Bytes
    headers: dict[str, Bytes]


class Records(msgspec.Struct, kw_only=True):
    items: list[ShownRecord]
    next_offset: int | None
    """Where to go on; only when one partition was asked for."""
    next_cursor: str
    """Where to go on in all partitions."""


class SentMessage(msgspec.Struct, kw_only=True):
    message_id: str
    partition: int
    offset: int
    duplicate: bool


class SentMessages(msgspec.Struct, kw_only=True):
    items: list[SentMessage]
    """In the order they were given."""


class ReceivedMessage(ShownRecord, kw_only=True):
    message_id: str
    receipt: str | msgspec.UnsetType = msgspec.UNSET
    """What acknowledges it; not in a peek."""
    delivery: int | msgspec.UnsetType = msgspec.UNSET
    """1 the first time; not in a peek."""


class Messages(msgspec.Struct, kw_only=True):
    items: list[ReceivedMessage]


class MessageStatus(msgspec.Struct, kw_only=True):
    state: str
    deliveries: int


MAX_DETAIL = 1_000
"""Characters of the reason that comes with a rejected message."""


class Settle(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Receipts, a thousand in all at most."""

    ack: list[str] = []
    nack: list[str] = []
    reject: list[str] = []
    extend: list[str] = []
    delay: Annotated[str, Meta(pattern="^[0-9]{1,9}(ms|s|m|h|d)?$")] | None = None
    """For `nack`: not before so long; else by the queue's back-off."""
    detail: Annotated[str, Meta(max_length=MAX_DETAIL)] = ""
    """For `reject`: why; it stands in the dead letter."""
    visibility: Annotated[str, Meta(pattern="^[0-9]{1,9}(ms|s|m|h|d)?$")] | None = None
    """For `extend`: from now on."""


class RefusedReceipt(msgspec.Struct, kw_only=True):
    receipt: str
    code: str
    detail: str


class Settled(msgspec.Struct, kw_only=True):
    refused: list[RefusedReceipt]


class Left(msgspec.Struct, kw_only=True):
    runs: list[Annotated[list[int], Meta(min_length=2, max_length=2)]]
    """First and end of each run of offsets."""
    next: int | None
    """Where to go on with `from`."""


RAW_QUERY = (
    Param("tag", "a tag for filters; raw bodies only"),
    Param("delay", "deliver not before so long; raw bodies only", DURATION),
    Param("deliver_at", "deliver not before; raw bodies only", TIME),
    Param("ttl", "expires after so long; raw bodies only", DURATION),
    Param("priority", "0 to 9, where the queue has priorities; raw bodies only", whole(0, 9)),
    Param("group", "of a FIFO queue; raw bodies only"),
    Param("key", "the record's key; raw bodies only"),
)
IDEMPOTENCY = Param(
    "Idempotency-Key", "the same key within ten minutes is the same message", {"type": "string", "pattern": "^[!-~]{1,256}$"}
)  # fmt: skip
TRACE_HEADERS = (
    Param("traceparent", "the trace this belongs to (W3C); a header of each record that has none of its own"),
    Param("tracestate", "what vendors say of that trace (W3C)"),
)
"""What is not well-formed is left out, and no error."""
EVENTS = "text/event-stream"

PUBLISH = Contract(
    "Publish records",
    "topics",
    {201: PublishedRecords},
    "JSON is one record or {\"records\": […]}; any other body is the value of one record, with `x-header-…` headers as its "
    "headers. Answered when the records are committed.",
    query=(Param("partition", "instead of the one the key leads to", whole(-1, 1_000_000)), *RAW_QUERY),
    headers=(IDEMPOTENCY, *TRACE_HEADERS),
    body=(NewRecord, NewRecords),
    raw_body=True,
    problems=(400, 404, 409),
)  # fmt: skip
READ = Contract(
    "Browse or tail records",
    "topics",
    {200: Records},
    "By offset, by time or from a cursor. `Accept: application/jsonl` gives lines (the cursor is in `X-Next-Cursor`), "
    "`Accept: text/event-stream` goes on for ever and resumes from `Last-Event-ID`.",
    query=(
        Param("partition", "one of them; all without it", whole(-1, 1_000_000)),
        Param(
            "offset",
            "a number, start, end, -N for the last N, or @ and a time, as in @15m or @2026-11-01",
            OFFSET,
        ),
        Param("from", "the first record at or after this time", TIME),
        Param("cursor", "next_cursor of the page before"),
        Param("limit", "at most so many", whole(1, 1_000, 100)),
        Param("where", "a filter, such as value.amount > 100"),
    ),
    other_types=("application/jsonl", EVENTS),
    problems=(400, 404),
)
RECEIPT_PROBLEMS = (400, 404)
RECEIVE_QUERY = (
    Param("max", "at most so many", whole(1, 1_000, 1)),
    Param("wait", "for the first one, up to a minute", DURATION),
    Param("visibility", "how long they are locked for this consumer", DURATION),
)
CLIENT = Param(
    "X-Headrace-Client", "who asks; any text. Needed to take messages by GET, except from a page of this server", {"type": "string", "pattern": "^[!-~]{1,64}$"}
)  # fmt: skip
STREAM = Contract(
    "Consume a queue as server-sent events",
    "queues",
    {200: str},
    "For a page of this server (EventSource) or a program: each event is a message with its receipt, which DELETE acknowledges; no "
    "more than `window` are out at a time. `ack=auto` is at most once.",
    query=(
        Param("window", "so many unacknowledged at a time", whole(1, 100, 10)),
        Param("visibility", "how long each is locked for this page", DURATION),
        Param("ack", "by hand, or when the event was written", one_of("manual", "auto")),
    ),
    content_type=EVENTS,
)
