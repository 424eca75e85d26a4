"""Command: `headrace user enable`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_users
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.user_view import UserRow, path_of, user_row


@leaf(UserRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_users)
def command(run: Invocation, name: str) -> None:
    """Let a disabled user in again."""
    row = user_row(run.http.ask("PATCH", path_of(name), {"enabled": True}))
    run.output.one(row, lambda: "")
    run.done(f"{name} is let in")
