"""Codec: queues, subscriptions and schedules themselves."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.broker.queueing.cron import CronSchedule
from headrace.http.contract import FLAG, Param, whole
from headrace.http.rest.forms.messages import MILLISECONDS, Bytes, ShownRecord
from headrace.queues.elastic import Elastic

Name = Annotated[
    str, Meta(extra_json_schema={"minLength": 1, "maxLength": 249, "pattern": "^[A-Za-z0-9._-]+$"})
]
"""What is wrong with one is said in better words than a pattern's (`topic_name_problem`)."""
COUNT = Annotated[int, Meta(ge=0, le=2**53)]
POSITIVE = Annotated[int, Meta(ge=1, le=2**53)]


class NewElastic(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One partition should take at most `rate` messages a second and have at most `backlog` that are ready. Their number doubles
    when they have been busy for `grow_after_ms`, and halves when they have been idle for `shrink_after_ms`."""

    max_partitions: int
    min_partitions: int | UnsetType = UNSET
    rate: int | UnsetType = UNSET
    backlog: int | UnsetType = UNSET
    grow_after_ms: int | UnsetType = UNSET
    shrink_after_ms: int | UnsetType = UNSET


class NewBackoff(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How long a message that was handed back rests before its next delivery."""

    initial_ms: COUNT | UnsetType = UNSET
    multiplier: float | UnsetType = UNSET
    max_ms: COUNT | UnsetType = UNSET
    jitter: float | UnsetType = UNSET


class QueueChange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Anything that is left out stays as it is; of a new queue it is what queues of its kind have."""

    filter: str | UnsetType = UNSET
    default_delay_ms: MILLISECONDS | UnsetType = UNSET
    tags: dict[str, str] | UnsetType = UNSET
    elastic: NewElastic | UnsetType | None = UNSET
    visibility_ms: MILLISECONDS | UnsetType = UNSET
    max_deliveries: COUNT | UnsetType = UNSET
    dead_letter: str | UnsetType = UNSET
    dead_letter_expired: bool | UnsetType = UNSET
    max_in_flight: POSITIVE | UnsetType = UNSET
    max_lease_ms: MILLISECONDS | UnsetType = UNSET
    backoff: NewBackoff | UnsetType | None = UNSET
    dedup_window_ms: MILLISECONDS | UnsetType = UNSET
    dedup_per_group: bool | UnsetType = UNSET
    priorities: bool | UnsetType = UNSET
    fair: bool | UnsetType = UNSET
    delays: bool | UnsetType = UNSET
    ttl: bool | UnsetType = UNSET
    journaled_leases: bool | UnsetType = UNSET
    window: POSITIVE | UnsetType = UNSET
    uncommitted: bool | UnsetType = UNSET


class NewQueue(QueueChange, kw_only=True, forbid_unknown_fields=True):
    name: Name
    topics: list[Name] | None = None
    """Others than its own: a subscription over them."""
    partitions: Annotated[int, Meta(ge=1, le=10_000)] = 1
    start: Literal["earliest", "latest"] | UnsetType = UNSET
    """Left out: a queue starts at the earliest, a subscription at the latest."""
    fifo: bool | UnsetType = UNSET
    """Left out: by its name, which ends in .fifo."""


class NewSubscription(NewQueue, kw_only=True, forbid_unknown_fields=True):
    topics: Annotated[list[Name], Meta(min_length=1)]


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
    unknown_partitions: int
    """Of which nobody answers: what lies there is in none of these numbers, and nobody receives it."""
    active_partitions: int
    """New messages go to so many of them."""
    moving: bool
    """Message groups are on their way from one partition to another."""
    elastic: Elastic | None


class ListedQueue(ShownQueue, kw_only=True):
    """What `with=rates` asks for is the whole cluster's, as of the last second."""

    in_per_s: float | msgspec.UnsetType = msgspec.UNSET
    """Of its topics."""
    done_per_s: float | msgspec.UnsetType = msgspec.UNSET


class QueuePage(msgspec.Struct, kw_only=True):
    items: list[ListedQueue]
    next_cursor: str | None
    total: int
    """On all pages."""


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
