"""Codec: what happened to the cluster, and who did what."""

from __future__ import annotations

from typing import Literal

import msgspec


class ShownHappening(msgspec.Struct, kw_only=True):
    at_ms: int
    last_ms: int
    """The same within some seconds is one line: when the last of it was."""
    kind: str
    """leader-lost, leader-elected, isr-shrunk, isr-grown, replicas-moved, broker-up, broker-down, controller-elected, topic-created, topic-deleted,
    topic-configured, webhook-disabled, webhook-changed, move-begun, move-ended, dead-letters-begin, dead-letters-end, queue-paused, queue-resumed,
    trouble or trouble-over; there may be more."""
    severity: Literal["good", "info", "warning", "error"]
    thing: Literal["broker", "topic", "partition", "queue", "webhook"]
    names: list[str]
    """The first of those that it happened to, as far as the caller may see them."""
    count: int
    text: str
    """A sentence about it."""
    seen_by: int
    """The broker that tells it."""
    everywhere: bool
    """Every broker has seen it; otherwise this one alone."""


class Happened(msgspec.Struct, kw_only=True):
    items: list[ShownHappening]
    """The newest first."""
    next_cursor: None
    began_ms: int
    """Nothing is known from before."""
    answered_by: int
    missing: list[int]
    """Brokers that did not answer; what only they have seen is not here."""


class AuditRow(msgspec.Struct, kw_only=True):
    at_ms: int
    broker: int
    event: str
    """login, login_failed, nameless, denied, would_deny, change or console."""
    principal: str
    host: str
    mechanism: str
    operation: str
    resource: str
    name: str
    text: str
    """What was changed; why a login failed; what was answered."""
    rule: str
    """Which rule denied it."""
    request_id: str
    before: dict[str, str]
    """Of what was changed in the console: the fields that are not the same afterwards, as JSON."""
    after: dict[str, str]
    count: int
    """So many within a minute."""


class AuditPage(msgspec.Struct, kw_only=True):
    items: list[AuditRow]
    """The newest first."""
    looked_at: int
    next_cursor: str | None
