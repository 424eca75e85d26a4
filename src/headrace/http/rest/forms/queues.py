"""Codec: queues, subscriptions and schedules themselves."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.broker.queueing.cron import CronSchedule
from headrace.http.contract import FLAG, Param, whole
from headrace.http.rest.forms.messages import MILLISECONDS, Bytes, ShownRecord
from headrace.queues.elastic import Elastic

Name = Annotated[str, Meta(min_length=1, max_length=249, pattern=r"^[A-Za-z0-9._-]+$")]
COUNT = Annotated[int, Meta(ge=0, le=1_000_000)]


class QueueChange(msgspec.Struct, kw_only=True):
    """Anything that is left out stays as it is."""

    filter: str = ""
    default_delay_ms: MILLISECONDS = 0
    tags: dict[str, str] = {}
    visibility_ms: MILLISECONDS = 30_000
    max_deliveries: COUNT = 0
    dead_letter: str = ""
    dead_letter_expired: bool = False
    max_in_flight: Annotated[int, Meta(ge=1, le=10_000_000)] = 120_000
    dedup_window_ms: MILLISECONDS = 0
    priorities: bool = False
    fair: bool = False
    delays: bool = True
    ttl: bool = False


class NewQueue(QueueChange, kw_only=True):
    name: Name
    topics: list[Name] = []
    """More than its own: a subscription over them."""
    partitions: Annotated[int, Meta(ge=1, le=10_000)] = 1
    start: Literal["earliest", "latest"] = "earliest"
    fifo: bool = False


class NewSubscription(QueueChange, kw_only=True):
    name: Name
    topics: Annotated[list[Name], Meta(min_length=1)]
    start: Literal["earliest", "latest"] = "latest"


class ShownQueue(msgspec.Struct, kw_only=True):
    name: str
    kind: Literal["queue", "subscription"]
    topics: list[str]
    fifo: bool
    ready: int
    in_flight: int
    delayed: int
    dying: int
    oldest_age_ms: int
    paused: bool
    dead_letter: str
    max_deliveries: int
    visibility_ms: int
    default_delay_ms: int
    filter: str
    start: str
    config: dict[str, Bytes]
    tags: dict[str, str]
    dead_letter_of: list[str]
    created_ms: int
    partitions: int
    active_partitions: int
    """New messages go to so many of them."""
    moving: bool
    """Message groups are on their way from one partition to another."""
    elastic: Elastic | None


class QueuePage(msgspec.Struct, kw_only=True):
    items: list[ShownQueue]
    next_cursor: str | None


class Purged(msgspec.Struct, kw_only=True):
    purged: int


class Paused(msgspec.Struct, kw_only=True):
    paused: bool


class WaitingMessage(ShownRecord, kw_only=True):
    message_id: str
    due_ms: int


class WaitingPage(msgspec.Struct, kw_only=True):
    items: list[WaitingMessage]
    next_cursor: str | None


class NewTime(msgspec.Struct, kw_only=True):
    deliver_at: str
    """A time, or milliseconds since 1970."""


class MovedMessage(msgspec.Struct, kw_only=True):
    message_id: str
    due_ms: int


class ShownSchedule(CronSchedule, frozen=True, kw_only=True):
    next_ms: int
    upcoming: list[str]
    """The next ten times."""


class SchedulePage(msgspec.Struct, kw_only=True):
    items: list[ShownSchedule]
    next_cursor: str | None


PAGE = (
    Param("q", "only those with these words in their name"),
    Param("limit", "at most so many", whole(1, 1_000)),
    Param("cursor", "next_cursor of the page before"),
    Param("fields", "only these, separated by commas"),
)
CHANGE_PROBLEMS = (400, 404, 409)
KEEP_TOPIC = Param("keep_topic", "delete the queue and leave its topic", FLAG)
