"""Codec: why a queue is behind, with the evidence."""

from __future__ import annotations

import msgspec

from headrace.http.rest.forms.administration import Explained


class HeldMessage(msgspec.Struct, kw_only=True):
    place: str
    """topic/partition/offset."""
    deliveries: int
    holder: str | None
    """Null: SQS and REST do not say who receives."""
    ends_in_ms: int


class BlockedGroup(msgspec.Struct, kw_only=True):
    group: str
    waiting: int
    place: str
    """topic/partition/offset of what holds it up."""
    deliveries: int
    in_flight: bool


class FedWebhook(msgspec.Struct, kw_only=True):
    name: str
    state: str
    circuit: str
    reason: str


class QueueExplanation(msgspec.Struct, kw_only=True):
    queue: str
    ready: int
    in_flight: int
    delayed: int
    sentence: str
    findings: list[Explained]
    """The most telling first; empty: nothing is known that would hold it up."""
    held: list[HeldMessage]
    """The twenty that were delivered most often."""
    blocked: list[BlockedGroup]
    """Of a FIFO queue: the twenty groups with the most that waits."""
    webhooks: list[FedWebhook]
