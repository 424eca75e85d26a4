"""Command: queues and their messages as rows, shared by `queue`, `subscription` and `dlq`."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from headrace.cli.output import Column, Row, column
from headrace.core.units import format_age_ms


class QueueRow(Row):
    SCHEMA: ClassVar[str] = "headrace.queue.list/v1"
    name: str
    kind: str
    """queue or subscription."""
    topics: list[str]
    fifo: bool
    ready: int
    in_flight: int
    delayed: int
    oldest_age_ms: int
    paused: bool
    dead_letter: str
    max_deliveries: int
    visibility_ms: int
    default_delay_ms: int
    filter: str
    unknown_partitions: int
    """Nobody answers for them: what lies there is in none of the numbers."""


QUEUE_COLUMNS = [
    column("NAME", "name"),
    Column("READY", lambda row: f"{row.ready} + ?" if row.unknown_partitions else row.ready, True),
    column("IN FLIGHT", "in_flight", right=True),
    column("DELAYED", "delayed", right=True),
    Column("OLDEST", lambda row: format_age_ms(row.oldest_age_ms), True),
    Column("DEAD LETTERS", lambda row: row.dead_letter or None),
    column("FIFO", "fifo", wide=True),
    column("PAUSED", "paused", wide=True),
]


class QueueMessageRow(Row):
    SCHEMA: ClassVar[str] = "headrace.queue.message/v2"
    NAME: ClassVar[str] = "message_id"
    message_id: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: dict[str, Any]
    receipt: str | None = None
    delivery: int = 0
    due_ms: int | None = None


MESSAGE_COLUMNS = [
    column("ID", "message_id", whole=True),
    Column("VALUE", lambda row: short(row.value)),
    Column("HEADERS", lambda row: short(row.headers) if row.headers else None),
]

RECEIVED_COLUMNS = [
    Column("VALUE", lambda row: short(row.value)),
    Column("HEADERS", lambda row: short(row.headers) if row.headers else None),
    column("DELIVERY", "delivery", right=True),
    column("RECEIPT", "receipt", whole=True),
    column("ID", "message_id", wide=True),
]
"""A receipt is what whoever received a message needs next (F53)."""


def queue_row(item: dict[str, Any]) -> QueueRow:
    return msgspec.convert(item, QueueRow)


def message_row(item: dict[str, Any]) -> QueueMessageRow:
    return msgspec.convert(item, QueueMessageRow)


def short(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
