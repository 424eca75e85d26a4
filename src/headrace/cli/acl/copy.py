"""Command: `headrace acl copy`."""

from __future__ import annotations

import click
from confluent_kafka.admin import AclBinding  # type: ignore[attr-defined]

from headrace.cli.acl_view import AclRow, create_all, everything, principal_of, rights_of
from headrace.cli.completing import complete_users
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape


@leaf(AclRow, Shape.ITEMS, broker=True)
@click.argument("user", shell_complete=complete_users)
@click.argument("source", shell_complete=complete_users)
def command(run: Invocation, user: str, source: str) -> Exit:
    """Give a user the rights that another has."""
    found = rights_of(run, everything(principal_of(source)))
    if not found:
        raise Failure(Exit.NOT_FOUND, f"{source} has no rights")
    wanted = [
        AclBinding(
            acl.restype,
            acl.name,
            acl.resource_pattern_type,
            principal_of(user),
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for acl in found
    ]
    return create_all(run, wanted)
