"""Command: `headrace user list`."""

from __future__ import annotations

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Shape, column
from headrace.cli.user_view import USERS, UserRow, user_row


@leaf(UserRow, Shape.ITEMS, http=True)
def command(run: Invocation) -> None:
    """List the users."""
    rows = [user_row(found) for found in run.http.ask("GET", USERS)["items"]]
    if not rows:
        run.note("No users yet. Make one with:  headrace user create NAME")
    run.output.items(
        UserRow,
        rows,
        [
            column("NAME", "name"),
            Column("STATE", lambda row: "enabled" if row.enabled else "disabled"),
            Column("SUPER", lambda row: "yes" if row.super else ""),
            Column("MECHANISMS", lambda row: ", ".join(row.mechanisms)),
        ],
    )
