"""Command: `headrace acl grant`."""

from __future__ import annotations

import click

from headrace.cli.acl_view import AclRow, create_all, rights_of_role
from headrace.cli.completing import complete_users
from headrace.cli.failure import Exit
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.security.roles import ROLES


@leaf(AclRow, Shape.ITEMS, broker=True)
@click.argument("user", shell_complete=complete_users)
@click.argument("role", type=click.Choice(list(ROLES)))
@click.option("--prefix", default="", help="Only topics and groups whose names begin so.")
@click.option(
    "--host", default="*", show_default=True, help="Only from this address, or network as in 10.0.0.0/8."
)
def command(run: Invocation, user: str, role: str, prefix: str, host: str) -> Exit:
    """Give a user all rights of a role.

    As in: headrace acl grant alice operator. viewer: lists and numbers. reader: messages too. operator: moves groups, sends dead letters back, pauses, webhooks. admin: everything. A role is a word for rights: acl list shows them one by one, acl revoke takes them.
    """
    return create_all(run, rights_of_role(user, role, prefix, host))
