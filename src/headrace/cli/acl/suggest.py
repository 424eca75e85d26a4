"""Command: `headrace acl suggest`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_users
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column
from headrace.cli.security_view import SECURITY
from headrace.cli.token_view import spaced


class SuggestionRow(Row):
    SCHEMA: ClassVar[str] = "headrace.acl.suggest/v1"
    NAME: ClassVar[str] = "command"
    command: str
    """Gives the right."""
    count: int
    """How often it was missing within a day."""
    last_ms: int


@leaf(SuggestionRow, Shape.ITEMS, http=True)
@click.option("--user", default="", shell_complete=complete_users, help="Only this user's.")
def command(run: Invocation, user: str) -> None:
    """Write the rights that were missing.

    Those of the last day, as commands to read and then to run. In mode observe that is what clients do and may not, at whichever broker.
    """
    found = run.http.ask("GET", f"{SECURITY}/denials")["denied"]
    rows = [
        SuggestionRow(command=_command(each), count=each["count"], last_ms=each["last_ms"])
        for each in found
        if each["principal"] != "User:ANONYMOUS"
        and each["still"]
        and not each["token"]  # its owner may have the right
        and user in ("", each["principal"].partition(":")[2])
    ]
    rows.sort(key=lambda row: row.command)
    run.output.items(
        SuggestionRow, rows, [column("COMMAND", "command", whole=True), column("COUNT", "count", right=True)]
    )


def _command(each: dict[str, str]) -> str:
    import shlex

    operation, kind = spaced(each["operation"]), spaced(each["resource"])
    name = [] if kind == "cluster" else [each["name"]]
    return shlex.join(["headrace", "acl", "add", each["principal"].partition(":")[2], operation, kind, *name])
