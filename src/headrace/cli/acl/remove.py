"""Command: `headrace acl remove`."""

from __future__ import annotations

import click

from headrace.cli.acl_view import KIND, AclRow, bindings, delete_all, operations_in
from headrace.cli.completing import complete_operations, complete_resources, complete_users
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape


@leaf(AclRow, Shape.ITEMS, broker=True)
@click.argument("user", shell_complete=complete_users)
@click.argument("operations", shell_complete=complete_operations)
@click.argument("kind", type=KIND)
@click.argument("name", required=False, shell_complete=complete_resources)
@click.option("--prefix", is_flag=True, help="Everything whose name begins so; NAME* is the same.")
@click.option("--deny", is_flag=True, help="A denial, which wins over every right.")
@click.option(
    "--host", default="*", show_default=True, help="Only from this address, or network as in 10.0.0.0/8."
)
def command(
    run: Invocation,
    user: str,
    operations: str,
    kind: str,
    name: str | None,
    prefix: bool,
    deny: bool,
    host: str,
) -> None:
    """Take rights away: the same words as for `acl add`."""
    delete_all(run, bindings(user, operations_in(operations), kind, name, host, prefix, deny))
