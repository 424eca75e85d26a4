"""Codec: moves: dead letters sent back, edited or discarded."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.http.rest.forms.messages import ShownRecord
from headrace.records.edits import MAX_CHARS, MAX_EDITS

COUNT = Annotated[int, Meta(ge=0, le=1_000_000)]


class NewMove(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    act: Literal["redrive", "edit", "discard"] = "redrive"
    """redrive: back to work; edit: they stay dead letters, with other words in them; discard: they are done."""
    to: str = ""
    """Empty: back to where they came from."""
    rate: COUNT = 0
    """Messages per second; 0 is as fast as it goes."""
    filter: str = ""
    set: Annotated[list[Annotated[str, Meta(max_length=MAX_CHARS)]], Meta(max_length=MAX_EDITS)] = []
    """What changes in each of them, as in `value.currency = "EUR"`; what it does not fit is left alone."""
    max: COUNT = 0
    dry_run: bool = False
    """Only say how many it would be."""


class MoveSample(msgspec.Struct, kw_only=True):
    before: ShownRecord
    after: ShownRecord


class ShownMove(msgspec.Struct, kw_only=True):
    id: str
    source: str
    act: str
    to: str
    status: str
    moved: int
    to_move: int
    skipped: int
    """Left alone, because what is set does not fit them."""
    rate: int
    filter: str
    set: list[str]
    by: str
    started_ms: int
    failure: str
    samples: list[MoveSample]
    """Of a dry run with `set`: three of them, before and after."""


class MovePage(msgspec.Struct, kw_only=True):
    items: list[ShownMove]
    next_cursor: str | None
