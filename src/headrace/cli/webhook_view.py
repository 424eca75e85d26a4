"""Command: webhooks as rows, shared by the verbs of `webhook`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from headrace.cli.failure import Exit, Failure
from headrace.cli.http_link import part
from headrace.cli.output import Column, Row, column

SECRET_VARIABLE = "HEADRACE_WEBHOOK_SECRET"  # noqa: S105 - where to look for it


class WebhookRow(Row):
    SCHEMA: ClassVar[str] = "headrace.webhook.list/v1"
    name: str
    queue: str
    url: str
    state: str
    """pending, active, paused or disabled."""
    reason: str
    form: str
    batch_size: int
    batch_wait_ms: int
    timeout_ms: int
    max_concurrency: int
    rate: float
    delivered: int
    """Messages, since the brokers that lead the queue do so."""
    failed: int
    """Requests that were not taken."""
    in_flight: int
    concurrency: int
    """How many requests the endpoint gets at once right now."""
    circuit: str
    """closed: sending; open: resting after failures; half_open: trying."""
    last_ms: int
    last_status: int
    last_detail: str


class NewWebhookRow(WebhookRow):
    SCHEMA: ClassVar[str] = "headrace.webhook.add/v1"
    secret: str
    """Shown once."""


WEBHOOK_COLUMNS = [
    column("NAME", "name"),
    column("QUEUE", "queue"),
    column("STATE", "state"),
    column("DELIVERED", "delivered", right=True),
    column("FAILED", "failed", right=True),
    column("AT ONCE", "concurrency", right=True),
    Column("CIRCUIT", lambda row: row.circuit if row.state == "active" else None),
    column("URL", "url", whole=True),
    Column("REASON", lambda row: row.reason or row.last_detail or None),
    column("FORM", "form", wide=True),
    column("BATCH", "batch_size", right=True, wide=True),
    column("RATE", "rate", right=True, wide=True),
]


def webhook_row(item: dict[str, Any]) -> WebhookRow:
    return msgspec.convert(item, WebhookRow)


def path_of(name: str, verb: str = "") -> str:
    return f"/api/v1/webhooks/{part(name)}" + (f"/{verb}" if verb else "")


def given_secret(file: str | None) -> str | None:
    """X25: from a file or the environment, never from the command line, which everybody on the machine can read."""
    if file is None:
        return os.environ.get(SECRET_VARIABLE) or None
    try:
        return Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise Failure(Exit.USAGE, f"{file} can't be read: {problem}") from None
