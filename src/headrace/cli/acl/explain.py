"""Command: `headrace acl explain`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_operations, complete_resources, complete_users
from headrace.cli.failure import Exit
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.security_view import SECURITY


class AclExplainRow(Row):
    SCHEMA: ClassVar[str] = "headrace.acl.explain/v1"
    NAME: ClassVar[str] = "rule"
    allowed: bool
    rule: str
    granted_by: list[str]
    """Commands, each of which would allow it."""


@leaf(AclExplainRow, Shape.ONE, http=True)
@click.argument("user", shell_complete=complete_users)
@click.argument("operation", shell_complete=complete_operations)
@click.argument("kind", type=click.Choice(["topic", "group", "cluster", "transactional-id"]))
@click.argument("name", default="", shell_complete=complete_resources)
@click.option("--host", default="127.0.0.1", show_default=True, help="From this address.")
def command(run: Invocation, user: str, operation: str, kind: str, name: str, host: str) -> Exit:
    """Say whether a user may do something, by which rule, and what would allow it."""
    principal = user if ":" in user else f"User:{user}"
    asked = {
        "principal": principal,
        "operation": operation.replace("-", ""),
        "resource": kind.replace("-", ""),
        "name": name,
        "host": host,
    }
    found = run.http.ask("POST", f"{SECURITY}/explain", asked)
    commands = [
        f"headrace acl add {user} {each['operation'].lower()} {kind} {name}".rstrip()
        for each in found["granted_by"]
    ]
    row = AclExplainRow(allowed=found["allowed"], rule=found["rule"], granted_by=commands)
    verdict = "allowed" if row.allowed else "denied"
    run.output.one(
        row,
        lambda: "\n".join([f"{verdict}: {row.rule}", *(f"  would allow it:  {each}" for each in commands)]),
    )
    return Exit.OK if row.allowed else Exit.DENIED
