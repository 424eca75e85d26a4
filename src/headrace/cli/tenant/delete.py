"""Command: `headrace tenant delete`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_tenants
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column
from headrace.cli.tenant_view import TENANTS


class DeletedTenantRow(Row):
    SCHEMA: ClassVar[str] = "headrace.tenant.delete/v1"
    name: str
    status: str


@leaf(DeletedTenantRow, Shape.ITEMS, http=True, confirms=True)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_tenants)
def command(run: Invocation, names: tuple[str, ...]) -> None:
    """End tenants: their users, rights, tokens and quotas. Their topics stay."""
    run.confirm(f"end {', '.join(names)}, with everything that is logged in as them")
    for name in names:
        run.http.ask("DELETE", f"{TENANTS}/{part(name)}")
    rows = [DeletedTenantRow(name=name, status="deleted") for name in names]
    run.output.items(DeletedTenantRow, rows, [column("NAME", "name"), column("STATUS", "status")])
