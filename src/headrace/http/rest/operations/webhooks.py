"""Codec: webhooks."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.http.openapi import FLAG, Operation, Operations, Param, whole
from headrace.http.rest.webhooks import NewWebhook, Options
from headrace.push.delivery_log import KEPT


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
    retry: dict[str, Any]
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


class DeliveryPage(msgspec.Struct, kw_only=True):
    items: list[dict[str, Any]]
    next_cursor: str | None


class Tested(msgspec.Struct, kw_only=True):
    name: str
    state: str


class Retried(msgspec.Struct, kw_only=True):
    name: str
    retried: int


class Confirmation(msgspec.Struct, kw_only=True):
    token: str


class Retry(msgspec.Struct, kw_only=True):
    delivery: str = ""
    """The id of an entry of the log; empty: all that wait."""


class NewSecret(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    secret: str | None = None
    overlap_ms: int = 24 * 60 * 60 * 1000


class Rotated(msgspec.Struct, kw_only=True):
    name: str
    secret: str
    overlap_ms: int


PROBLEMS = (400, 404, 409)
TAG = "webhooks"

OPERATIONS: Operations = {
    ("GET", "/api/v1/webhooks"): Operation("List webhooks", TAG, {200: WebhookPage}, problems=()),
    ("POST", "/api/v1/webhooks"): Operation(
        "Add a webhook", TAG, {201: AddedWebhook}, body=(NewWebhook,), problems=PROBLEMS
    ),
    ("GET", "/api/v1/webhooks/{webhook}"): Operation("Look at a webhook", TAG, {200: ShownWebhook}),
    ("PATCH", "/api/v1/webhooks/{webhook}"): Operation(
        "Change a webhook", TAG, {200: ShownWebhook}, body=(Options,), problems=PROBLEMS
    ),
    ("DELETE", "/api/v1/webhooks/{webhook}"): Operation(
        "Remove a webhook", TAG, {204: None}, query=(Param("keep_queue", "and leave its queue", FLAG),)
    ),
    ("POST", "/api/v1/webhooks/{webhook}/test"): Operation("Send a test message", TAG, {200: Tested}, problems=PROBLEMS),
    ("POST", "/api/v1/webhooks/{webhook}/pause"): Operation("Stop sending", TAG, {200: ShownWebhook}, problems=PROBLEMS),
    ("POST", "/api/v1/webhooks/{webhook}/resume"): Operation("Go on sending", TAG, {200: ShownWebhook}, problems=PROBLEMS),
    ("POST", "/api/v1/webhooks/{webhook}/retry"): Operation(
        "Try again now", TAG, {200: Retried}, body=(Retry,), body_required=False, problems=PROBLEMS
    ),
    ("POST", "/api/v1/webhooks/{webhook}/confirm"): Operation(
        "Confirm an endpoint by hand", TAG, {200: ShownWebhook}, body=(Confirmation,), problems=PROBLEMS
    ),
    ("POST", "/api/v1/webhooks/{webhook}/rotate-secret"): Operation(
        "A new signing secret", TAG, {200: Rotated}, body=(NewSecret,), body_required=False, problems=PROBLEMS
    ),
    ("GET", "/api/v1/webhooks/{webhook}/deliveries"): Operation(
        "The delivery log", TAG, {200: DeliveryPage},
        query=(Param("limit", "the newest so many", whole(1, KEPT, 50)), Param("failed", "only these", FLAG)),
    ),
}  # fmt: skip
