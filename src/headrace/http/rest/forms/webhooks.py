"""Codec: webhooks."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.core.moments import DAY_MS
from headrace.push.spec import Retry


class ShownWebhook(msgspec.Struct, kw_only=True):
    name: str
    queue: str
    url: str
    state: str
    reason: str
    form: str
    batch_size: int
    batch_wait_ms: int
    timeout_ms: int
    max_concurrency: int
    rate: float
    retry: Retry
    owner: str
    """Who set it last: it runs in their name; empty: nobody was asked."""
    secrets: int
    created_ms: int
    confirmed_ms: int
    delivered: int
    failed: int
    in_flight: int
    concurrency: float
    circuit: str
    last_ms: int
    last_status: int
    last_detail: str


class AddedWebhook(ShownWebhook, kw_only=True):
    secret: str
    """Shown once."""


class WebhookPage(msgspec.Struct, kw_only=True):
    items: list[ShownWebhook]
    next_cursor: str | None


class ShownDelivery(msgspec.Struct, kw_only=True):
    id: str
    at_ms: int
    message_id: str
    """Of a batch: the first one's."""
    messages: int
    topic: str
    partition: int
    offset: int
    attempt: int
    outcome: str
    """delivered, failed, gone or refused."""
    status: int
    """0: there was no answer."""
    duration_ms: int
    detail: str
    next_ms: int
    """When it is tried again; 0 when that is not planned."""


class DeliveryPage(msgspec.Struct, kw_only=True):
    items: list[ShownDelivery]
    next_cursor: str | None


class Tested(msgspec.Struct, kw_only=True):
    name: str
    ok: bool
    status: int
    """Of HTTP; 0: there was no answer."""
    detail: str
    duration_ms: int
    state: str


class Retried(msgspec.Struct, kw_only=True):
    name: str
    retried: int


class Confirmation(msgspec.Struct, kw_only=True):
    token: str


class RetryRequest(msgspec.Struct, kw_only=True):
    delivery: str = ""
    """The id of an entry of the log; empty: all that wait."""


class NewSecret(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    secret: str | None = None
    overlap_ms: Annotated[int, Meta(ge=0, le=30 * DAY_MS)] = DAY_MS


class Rotated(msgspec.Struct, kw_only=True):
    name: str
    secret: str
    overlap_ms: int


PROBLEMS = (400, 404, 409)
TAG = "webhooks"
