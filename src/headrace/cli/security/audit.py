"""Command: `headrace security audit`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_users
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column, moment
from headrace.cli.parameters import Number


class AuditedRow(Row):
    SCHEMA: ClassVar[str] = "headrace.security.audit/v1"
    NAME: ClassVar[str] = "event"
    at: str
    event: str
    principal: str
    host: str
    operation: str
    resource: str
    name: str
    text: str
    rule: str
    request_id: str
    before: dict[str, str]
    after: dict[str, str]
    count: int
    broker: int


@leaf(AuditedRow, Shape.ITEMS, http=True)
@click.option("-n", "--max", "limit", type=Number(1, 500), default=50, show_default=True, help="So many.")
@click.option("--user", default="", shell_complete=complete_users, help="Only this user's.")
@click.option("--event", default="", help="Only these: login, login_failed, denied, change, console.")
@click.option("--contains", default="", help="Only those with this word.")
def command(run: Invocation, limit: int, user: str, event: str, contains: str) -> None:
    """Show who did what, the newest first: logins, denials, changes of security, changes made in the console."""
    principal = user if not user or ":" in user or "@" in user else f"User:{user}"
    query = {"limit": str(limit), "principal": principal, "event": event, "contains": contains}
    found = run.http.ask("GET", "/api/v1/audit", query={key: value for key, value in query.items() if value})
    rows = [
        AuditedRow(**{field: one[field] for field in AuditedRow.__struct_fields__}) for one in found["items"]
    ]
    columns = [
        moment("WHEN", "at"),
        column("EVENT", "event"),
        column("WHO", "principal"),
        column("FROM", "host"),
        Column(
            "WHAT",
            lambda row: " ".join(filter(None, (row.operation, row.resource, row.name, row.text))),
            whole=True,
        ),
        column("COUNT", "count", right=True, wide=True),
    ]
    run.output.items(AuditedRow, rows, columns)
    if not rows:
        run.note("Nothing like that was written down." if query else "")
