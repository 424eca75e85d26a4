"""Command: tokens as commands show them."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from headrace.cli.output import Row

TOKENS = "/api/v1/security/tokens"


class TokenRow(Row):
    SCHEMA: ClassVar[str] = "headrace.token/v1"
    NAME: ClassVar[str] = "id"
    id: str
    owner: str
    name: str
    created_ms: int
    expires_ms: int
    token: str | None = None
    """Only when it was made just now: it is shown once."""


def token_row(found: dict[str, Any]) -> TokenRow:
    return msgspec.convert(found, TokenRow)
