"""Codec: looking for messages, and at what happens: search, histogram, history, events."""

from __future__ import annotations

import msgspec

from headrace.http.openapi import TEXT, TIME, Operation, Operations, Param, Schema, one_of, whole
from headrace.http.rest.operations.messages import ShownRecord

LIST_OF_TEXTS: Schema = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 20}


class FoundRecord(ShownRecord, kw_only=True):
    size: int
    """Of key, value and headers, in bytes."""


class FoundRecords(msgspec.Struct, kw_only=True):
    items: list[FoundRecord]
    looked_at: int
    """Records that this step has looked at."""
    looked_bytes: int
    left: int
    """Offsets that nobody has looked at yet."""
    next_cursor: str | None
    """Where to go on; null: that was everything."""


class Histogram(msgspec.Struct, kw_only=True):
    from_ms: int
    step_ms: int
    counts: list[int]
    total: int


class ShownBatch(msgspec.Struct, kw_only=True):
    base_offset: int
    records: int
    bytes: int
    codec: str
    producer_id: int | None
    producer_epoch: int | None
    transactional: bool
    log_append_time: bool
    leader_epoch: int


class OneRecord(FoundRecord, kw_only=True):
    batch: ShownBatch


class Reader(msgspec.Struct, kw_only=True):
    kind: str
    """group, queue, subscription or view."""
    name: str
    lag: int | None
    members: int | None
    out_per_s: float | None


class Readers(msgspec.Struct, kw_only=True):
    items: list[Reader]
    next_cursor: str | None


class ShownHistory(msgspec.Struct, kw_only=True):
    broker_id: int
    began_ms: int
    """Nothing is known from before."""
    from_ms: int
    step_ms: int
    series: dict[str, list[float | None]]
    """Null: a gap, which is not a zero."""


class FlowThing(msgspec.Struct, kw_only=True):
    kind: str
    """topic, group or queue."""
    name: str


class FlowNode(FlowThing, kw_only=True):
    per_s: float
    amount: int
    """Messages in a topic; behind or waiting otherwise."""
    members: int | None
    paused: bool


class FlowLink(msgspec.Struct, kw_only=True, rename={"source": "from", "target": "to"}):
    source: FlowThing
    target: FlowThing
    kind: str
    per_s: float
    behind: int
    state: str
    """flowing, slow, standing or idle."""


class Hidden(msgspec.Struct, kw_only=True):
    topics: int
    groups: int
    queues: int


class ShownFlow(msgspec.Struct, kw_only=True):
    nodes: list[FlowNode]
    links: list[FlowLink]
    hidden: Hidden
    """How many were left out."""


PARTITION = Param("partition", "only this one", whole(-1, 1_000_000))
WANTED = (
    Param("contains", "only records with this word in key, value or a header"),
    Param("where", "only records that match this filter"),
)
SPAN = (Param("from", "from this time on", TIME), Param("until", "before this time", TIME))

EXPORT = Param("format", "JSON lines, or CSV for a spreadsheet", one_of("jsonl", "csv"))

OPERATIONS: Operations = {
    ("GET", "/topics/{topic}/export"): Operation(
        "All messages of a topic as a file", "topics", {200: str}, "Those that are there when it begins; a stream, so of any size.",
        query=(EXPORT, *SPAN, *WANTED, PARTITION), content_type="application/octet-stream",
    ),
    ("GET", "/api/v1/queues/{queue}/export"): Operation(
        "All messages of a queue as a file", "queues", {200: str}, "What a receive could hand out. Nothing is taken.",
        query=(EXPORT, *WANTED), content_type="application/octet-stream",
    ),
    ("GET", "/topics/{topic}/search"): Operation(
        "Look for messages", "topics", {200: FoundRecords},
        "A step within a budget of time and bytes; `next_cursor` goes on. Changes nothing.",
        query=(
            Param("order", "which come first", one_of("newest", "oldest")), *SPAN, *WANTED, PARTITION,
            Param("limit", "at most so many", whole(1, 500, 50)), Param("cursor", "next_cursor of the step before"),
        ),
    ),
    ("GET", "/topics/{topic}/tail"): Operation(
        "Messages as they come", "topics", {200: str},
        "Server-sent events `records`, once a second: at most `rate` items, and how many were left out.",
        query=(PARTITION, *WANTED, Param("rate", "so many a second at most", whole(1, 500, 50))),
        content_type="text/event-stream",
    ),
    ("GET", "/topics/{topic}/histogram"): Operation(
        "How many messages when", "topics", {200: Histogram},
        query=(*SPAN, PARTITION, Param("buckets", "steps of time", whole(1, 300, 120))),
    ),
    ("GET", "/topics/{topic}/records/{partition}/{offset}"): Operation(
        "One record and the batch it came in", "topics", {200: OneRecord}
    ),
    ("GET", "/api/v1/topics/{topic}/readers"): Operation(
        "Who reads a topic, and how far behind", "topics", {200: Readers},
        "Groups are those that this broker coordinates.",
    ),
    ("GET", "/api/v1/history"): Operation(
        "Numbers of this broker over time", "cluster", {200: ShownHistory},
        "`broker.in`, `broker.out`, `broker.lag`, `broker.backlog`, `topic:NAME.in`, `group:NAME.lag`, `queue:NAME.ready` and others.",
        query=(
            Param("series", "a thing, a dot and a measure; may be given again", LIST_OF_TEXTS, required=True), *SPAN,
            Param("step", "1s for the last quarter of an hour, 15s for the last day", one_of("1s", "15s")),
        ),
        problems=(400,),
    ),
    ("GET", "/api/v1/flow"): Operation(
        "What flows where", "cluster", {200: ShownFlow},
        "Topics, the groups and queues that read them, and where dead letters go; the busiest and those in trouble.",
        query=(Param("limit", "of each kind at most", whole(1, 200, 30)),), problems=(400,),
    ),
    ("GET", "/api/v1/events"): Operation(
        "What happens now", "cluster", {200: str},
        "Server-sent events `tick`, one a second, with what has changed since the last. At most 50 streams a broker.",
        query=(Param("topics", "home, topic:NAME, group:NAME, queue:NAME; may be given again", {**LIST_OF_TEXTS, "items": TEXT}),),
        content_type="text/event-stream", problems=(400, 429),
    ),
}  # fmt: skip
