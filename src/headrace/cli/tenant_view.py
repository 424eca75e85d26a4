"""Command: tenants as commands show them (A63)."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from headrace.cli.output import Column, Row, column

TENANTS = "/api/v1/security/tenants"


class TenantRow(Row):
    SCHEMA: ClassVar[str] = "headrace.tenant/v1"
    name: str
    """Of its user, too."""
    prefix: str
    """With which the names of its topics, groups and transactional ids begin."""
    enabled: bool
    topics: int
    created_ms: int
    produce: float | None
    """Bytes a second; null: no limit."""
    consume: float | None
    requests: float | None
    """Percent of a second of a broker's time."""
    token: str | None = None
    """Only when it was made just now: it is shown once."""


COLUMNS: list[Column] = [
    column("NAME", "name"),
    column("PREFIX", "prefix"),
    column("TOPICS", "topics", right=True),
    Column("PRODUCE B/S", lambda row: "-" if row.produce is None else f"{row.produce:.0f}", right=True),
    Column("CONSUME B/S", lambda row: "-" if row.consume is None else f"{row.consume:.0f}", right=True),
]


def tenant_row(found: dict[str, Any]) -> TenantRow:
    return msgspec.convert(found, TenantRow)
