"""Command: access keys as commands show them."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from headrace.cli.output import Row

KEYS = "/api/v1/security/keys"


class KeyRow(Row):
    SCHEMA: ClassVar[str] = "headrace.key/v1"
    NAME: ClassVar[str] = "id"
    id: str
    owner: str
    name: str
    created_ms: int
    last_used_ms: int | None
    """To the hour at brokers where it was not used; null: never."""
    secret: str | None = None
    """Only when it was made just now: it is shown once."""


def key_row(found: dict[str, Any]) -> KeyRow:
    return msgspec.convert(found, KeyRow)
