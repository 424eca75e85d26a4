"""Command: the state of security, as commands show it."""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.cli.invocation import Invocation
from headrace.cli.output import Row

SECURITY = "/api/v1/security"


class SecurityRow(Row):
    SCHEMA: ClassVar[str] = "headrace.security/v1"
    NAME: ClassVar[str] = "mode"
    mode: str
    by: str
    since_ms: int
    users: int
    rights: int
    super_users: list[str]
    denied: int
    failed_logins: int
    revision: int


def security_row(found: dict[str, Any]) -> SecurityRow:
    return SecurityRow(**{name: found[name] for name in SecurityRow.__struct_fields__})


def show(row: SecurityRow) -> str:
    lines = [
        f"mode           {row.mode}" + (f" (by {row.by})" if row.by else ""),
        f"users          {row.users}",
        f"rights         {row.rights}",
        f"super users    {', '.join(row.super_users) or 'none'}",
        f"denied         {row.denied} at this broker since it started",
        f"failed logins  {row.failed_logins}",
    ]
    return "\n".join(lines)


def set_mode(run: Invocation, mode: str, *, force: bool = False) -> None:
    row = security_row(run.http.ask("PUT", f"{SECURITY}/mode", {"mode": mode, "force": force}))
    run.output.one(row, lambda: show(row))
