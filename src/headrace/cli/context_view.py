"""Command: contexts as the commands show them."""

from __future__ import annotations

from typing import ClassVar

from headrace.cli.contexts import Context
from headrace.cli.output import Row


class ContextRow(Row):
    SCHEMA: ClassVar[str] = "headrace.context/v1"
    name: str
    in_use: bool
    """Commands use it when nothing else is said."""
    bootstrap: str
    url: str | None
    """Null: the broker is asked for it."""
    user: str | None
    password_file: str | None
    token_file: str | None
    """What `headrace login` got."""
    tls_ca: str | None
    kept_by: str | None
    """The data directory of the server that keeps it up to date; null when a person made it."""


def context_row(name: str, context: Context, in_use: str) -> ContextRow:
    return ContextRow(
        name=name,
        in_use=name == in_use,
        bootstrap=context.bootstrap,
        url=context.url or None,
        user=context.user or None,
        password_file=context.password_file or None,
        token_file=context.token_file or None,
        tls_ca=context.tls_ca or None,
        kept_by=context.kept_by or None,
    )


def shown(row: ContextRow) -> str:
    lines = {
        "Context": row.name + ("   (in use)" if row.in_use else ""),
        "Kafka": row.bootstrap,
        "HTTP": row.url or "as the broker says",
        "User": row.user,
        "Token": row.token_file,
        "Password": row.password_file or ("HEADRACE_PASSWORD" if row.user and not row.token_file else None),
        "Trusts": row.tls_ca,
        "Kept by": row.kept_by and f"headrace serve in {row.kept_by}",
    }
    return "\n".join(f"{title:<9} {value}" for title, value in lines.items() if value)
