"""Codec: dead letters by what went wrong."""

from __future__ import annotations

import msgspec

from headrace.http.rest.forms.messages import ShownRecord, Whereabouts


class LetterKind(msgspec.Struct, kw_only=True):
    reason: str
    source: str
    error: str
    """Numbers and ids in it are `#`, so that one mistake is one row."""
    count: int
    first_ms: int
    last_ms: int
    example: Whereabouts


class LetterQueue(msgspec.Struct, kw_only=True):
    queue: str
    of: list[str]
    """Queues whose dead letters come here."""
    messages: int
    looked_at: int
    """So many of them were opened; the kinds count these."""
    kinds: list[LetterKind]


class DeadLetters(msgspec.Struct, kw_only=True):
    items: list[LetterQueue]
    next_cursor: str | None


class ShownLetter(ShownRecord, kw_only=True):
    reason: str
    source: str
    error: str
    deliveries: int
    edited_by: str | None
    edited_from: str | None
    """topic/partition/offset of the record as it was before."""


class Letters(msgspec.Struct, kw_only=True):
    items: list[ShownLetter]
    looked_at: int
    next_cursor: str | None
