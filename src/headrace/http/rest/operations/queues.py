"""Codec: queues, subscriptions and schedules themselves."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace.broker.queueing.cron import CronSchedule
from headrace.http.openapi import FLAG, Operation, Operations, Param, one_of, whole
from headrace.http.rest.operations.messages import MILLISECONDS, ShownRecord

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
    config: dict[str, Any]
    tags: dict[str, str]
    dead_letter_of: list[str]
    created_ms: int


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


class Moved(msgspec.Struct, kw_only=True):
    message_id: str
    due_ms: int


class ShownSchedule(CronSchedule, frozen=True, kw_only=True):
    next_ms: int


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

OPERATIONS: Operations = {
    ("GET", "/api/v1/queues"): Operation(
        "List queues", "queues", {200: QueuePage},
        query=(Param("kind", "only these", one_of("queue", "subscription")), *PAGE), problems=(400,),
    ),
    ("POST", "/api/v1/queues"): Operation(
        "Create a queue", "queues", {201: ShownQueue}, body=(NewQueue,), problems=CHANGE_PROBLEMS
    ),
    ("GET", "/api/v1/queues/{queue}"): Operation("Look at a queue", "queues", {200: ShownQueue}),
    ("PATCH", "/api/v1/queues/{queue}"): Operation(
        "Change a queue", "queues", {200: ShownQueue}, body=(QueueChange,), problems=CHANGE_PROBLEMS
    ),
    ("DELETE", "/api/v1/queues/{queue}"): Operation(
        "Delete a queue", "queues", {204: None}, "With its topic.", query=(KEEP_TOPIC,)
    ),
    ("GET", "/api/v1/subscriptions"): Operation(
        "List subscriptions", "subscriptions", {200: QueuePage}, query=PAGE, problems=(400,)
    ),
    ("POST", "/api/v1/subscriptions"): Operation(
        "Subscribe to topics", "subscriptions", {201: ShownQueue}, body=(NewSubscription,), problems=CHANGE_PROBLEMS
    ),
    ("GET", "/api/v1/subscriptions/{queue}"): Operation(
        "Look at a subscription", "subscriptions", {200: ShownQueue}
    ),
    ("PATCH", "/api/v1/subscriptions/{queue}"): Operation(
        "Change a subscription", "subscriptions", {200: ShownQueue}, body=(QueueChange,), problems=CHANGE_PROBLEMS
    ),
    ("DELETE", "/api/v1/subscriptions/{queue}"): Operation(
        "Delete a subscription", "subscriptions", {204: None}, "Its topics stay."
    ),
    ("POST", "/api/v1/queues/{queue}/purge"): Operation("Empty a queue", "queues", {200: Purged}),
    ("POST", "/api/v1/queues/{queue}/pause"): Operation("Stop handing out", "queues", {200: Paused}),
    ("POST", "/api/v1/queues/{queue}/resume"): Operation("Go on handing out", "queues", {200: Paused}),
    ("GET", "/api/v1/queues/{queue}/scheduled"): Operation(
        "Messages that wait for their time", "schedules", {200: WaitingPage},
        query=(Param("limit", "at most so many", whole(1, 1_000, 100)), Param("cursor", "next_cursor of the page before")),
    ),
    ("PATCH", "/api/v1/queues/{queue}/scheduled/{message}"): Operation(
        "Move a message in time", "schedules", {200: Moved}, body=(NewTime,)
    ),
    ("DELETE", "/api/v1/queues/{queue}/scheduled/{message}"): Operation(
        "Cancel a message", "schedules", {204: None}
    ),
    ("GET", "/api/v1/schedules"): Operation("List cron schedules", "schedules", {200: SchedulePage}, problems=()),
    ("POST", "/api/v1/schedules"): Operation(
        "Add or replace a cron schedule", "schedules", {201: ShownSchedule}, body=(CronSchedule,)
    ),
    ("DELETE", "/api/v1/schedules/{name}"): Operation("Remove a cron schedule", "schedules", {204: None}),
}  # fmt: skip
