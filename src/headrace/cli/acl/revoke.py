"""Command: `headrace acl revoke`."""

from __future__ import annotations

import click

from headrace.cli.acl_view import AclRow, delete_all, rights_of_role
from headrace.cli.completing import complete_users
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.security.roles import ROLES


@leaf(AclRow, Shape.ITEMS, broker=True)
@click.argument("user", shell_complete=complete_users)
@click.argument("role", type=click.Choice(list(ROLES)))
@click.option("--prefix", default="", help="Those that were given with this prefix.")
@click.option("--host", default="*", show_default=True, help="Those that were given for this address.")
def command(run: Invocation, user: str, role: str, prefix: str, host: str) -> None:
    """Take all rights of a role from a user, also those that were given by themselves."""
    delete_all(run, rights_of_role(user, role, prefix, host))
