"""Command: `headrace acl list`."""

from __future__ import annotations

import click

from headrace.cli.acl_view import COLUMNS, AclRow, acl_row, everything, principal_of, rights_of
from headrace.cli.completing import complete_users
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape


@leaf(AclRow, Shape.ITEMS, broker=True)
@click.argument("user", required=False, shell_complete=complete_users)
def command(run: Invocation, user: str | None) -> None:
    """List the rights, of everybody or of one user."""
    found = rights_of(run, everything(principal_of(user) if user else None))
    rows = sorted(map(acl_row, found), key=lambda row: (row.principal, row.resource, row.name, row.operation))
    run.output.items(AclRow, rows, COLUMNS)
    if not rows:
        run.note(f"No rights yet. Give some with:  headrace acl grant {user or 'USER'} ROLE")
