"""Machine: what became of the last deliveries of one webhook: a ring, so that memory is bounded whatever happens."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

KEPT = 200
MAX_TEXT = 200


class Attempt(NamedTuple):
    id: str
    at_ms: int
    """Wall clock, when it was sent."""
    message_id: str
    """Of a batch: the first one's."""
    messages: int
    topic: str
    partition: int
    offset: int
    attempt: int
    outcome: str
    status: int
    """0: there was no answer."""
    duration_ms: int
    detail: str
    next_ms: int
    """Wall clock of the next try; 0 when there is none planned."""


class DeliveryLog:
    __slots__ = ("_entries", "delivered", "failed", "last")

    def __init__(self, kept: int = KEPT) -> None:
        self._entries: deque[Attempt] = deque(maxlen=kept)
        self.delivered = 0
        """Messages."""
        self.failed = 0
        """Attempts."""
        self.last: Attempt | None = None

    def add(self, entry: Attempt) -> None:
        self._entries.append(entry)
        self.last = entry
        if entry.outcome == "delivered":
            self.delivered += entry.messages
        else:
            self.failed += 1

    def newest(self, limit: int = KEPT, *, failed_only: bool = False) -> list[Attempt]:
        found = [entry for entry in self._entries if not failed_only or entry.outcome != "delivered"]
        return found[::-1][:limit]

    def find(self, attempt_id: str) -> Attempt | None:
        return next((entry for entry in self._entries if entry.id == attempt_id), None)


def shown_text(raw: bytes) -> str:
    """What an endpoint said, safe to show: short, and without anything that moves a cursor (X28)."""
    text = raw[:MAX_TEXT].decode("utf-8", "replace")
    return "".join(char if char.isprintable() else " " for char in text).strip()
