"""Codec: looking for messages, and at what happens: search, histogram, history, events."""

from __future__ import annotations

import msgspec

from headrace.http.contract import TIME, Param, Schema, one_of, whole
from headrace.http.rest.forms.messages import ShownRecord

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


class TopicReader(msgspec.Struct, kw_only=True):
    kind: str
    """group, queue, subscription or view."""
    name: str
    lag: int | None
    members: int | None
    out_per_s: float | None


class Readers(msgspec.Struct, kw_only=True):
    items: list[TopicReader]
    next_cursor: str | None


class Trace(msgspec.Struct, kw_only=True):
    kind: str
    """group, queue or subscription."""
    name: str
    state: str
    """read or not-yet for a group; ready, locked, waiting, dying, done or not-yet for a queue."""
    committed: int | None
    ahead: int | None
    """Messages that the group reads before it, and this one."""
    deliveries: int | None
    holder: str | None
    due_ms: int | None
    """When its lock, or its wait, ends."""
    dead_letter: str
    """Where it goes when it fails too often."""


class Traces(msgspec.Struct, kw_only=True):
    items: list[Trace]
    next_cursor: None


class Writer(msgspec.Struct, kw_only=True):
    client: str
    """Its client id, or what it calls itself over HTTP."""
    door: str
    """kafka, REST or SQS."""
    per_s: float
    last_ms: int


class WriterList(msgspec.Struct, kw_only=True):
    items: list[Writer]
    next_cursor: None


class ShownMessageGroup(msgspec.Struct, kw_only=True):
    group: str
    waiting: int
    in_flight: int
    resting: int
    blocked: bool
    """The rest waits until one message is done."""
    topic: str
    partition: int
    by_offset: int | None
    """Of the message that the others wait for."""
    deliveries: int
    holder: str | None
    due_ms: int | None
    """When the lock of that message, or its rest, ends."""


class MessageGroups(msgspec.Struct, kw_only=True):
    items: list[ShownMessageGroup]
    next_cursor: None
    fifo: bool


class ShownHistory(msgspec.Struct, kw_only=True):
    broker_id: int
    brokers: int
    """So many of them have answered."""
    began_ms: int
    """Nothing is known from before."""
    from_ms: int
    step_ms: int
    series: dict[str, list[float | None]]
    """Null: a gap, which is not a zero."""


class FlowThing(msgspec.Struct, kw_only=True):
    kind: str
    """writer, topic, group, queue or pipeline."""
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
