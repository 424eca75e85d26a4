"""Codec: dead letters by what went wrong, and who holds what."""

from __future__ import annotations

import msgspec

from headrace.http.openapi import Operation, Operations, Param, whole
from headrace.http.rest.operations.looking import WANTED
from headrace.http.rest.operations.messages import ShownRecord


class Whereabouts(msgspec.Struct, kw_only=True):
    topic: str
    partition: int
    offset: int


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


class ShownLock(msgspec.Struct, kw_only=True):
    topic: str
    partition: int
    offset: int
    deliveries: int
    holder: str | None
    """Null: SQS and REST do not say who receives."""
    ends_in_ms: int
    visibility_ms: int
    received_ms: int


class Locks(msgspec.Struct, kw_only=True):
    items: list[ShownLock]
    next_cursor: str | None


OPERATIONS: Operations = {
    ("GET", "/api/v1/dead-letters"): Operation(
        "Dead letters of all queues, by what went wrong", "queues", {200: DeadLetters}, problems=(400,),
        query=(Param("queue", "only this one"), Param("look", "open so many of each at most", whole(1, 2_000, 2_000))),
    ),
    ("GET", "/api/v1/queues/{queue}/letters"): Operation(
        "Dead letters one by one", "queues", {200: Letters}, "What a receive could hand out, with what each says about its death. Nothing is taken.",
        query=(*WANTED, Param("limit", "at most so many", whole(1, 500, 50)), Param("cursor", "next_cursor of the page before")),
    ),
    ("GET", "/api/v1/queues/{queue}/locks"): Operation(
        "Messages that somebody has received and not settled", "queues", {200: Locks}, "Of what this broker hosts."
    ),
}  # fmt: skip
