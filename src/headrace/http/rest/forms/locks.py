"""Codec: who holds what of a queue, and what an operator does about it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.http.rest.forms.messages import RefusedReceipt, Whereabouts


class ShownLock(Whereabouts, kw_only=True):
    lock: str
    """Names this one delivery: what is done about it says it again, and does nothing to a later one."""
    deliveries: int
    holder: str | None
    """Null: SQS and REST do not say who receives."""
    ends_in_ms: int
    visibility_ms: int
    received_ms: int


class Locks(msgspec.Struct, kw_only=True):
    items: list[ShownLock]
    next_cursor: str | None


class LockAct(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    act: Literal["release", "extend", "ack", "reject"]
    """Let go; keep longer; say that it is done; to the dead letters."""
    locks: Annotated[list[str], Meta(min_length=1, max_length=500)]
    visibility: str | None = None
    """For how long from now on, as in 60s; of extend."""
    detail: Annotated[str, Meta(max_length=1_000)] = ""
    """Why; it stands in the dead letter. Of reject."""


class LocksSettled(msgspec.Struct, kw_only=True):
    settled: int
    refused: list[RefusedReceipt]
    """Each with why: what has been settled since then, or delivered again, is left alone."""
