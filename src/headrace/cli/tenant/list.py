"""Command: `headrace tenant list`."""

from __future__ import annotations

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.tenant_view import COLUMNS, TENANTS, TenantRow, tenant_row


@leaf(TenantRow, Shape.ITEMS, http=True)
def command(run: Invocation) -> None:
    """List tenants, what they have and their limits."""
    rows = [tenant_row(each) for each in run.http.ask("GET", TENANTS)["items"]]
    run.output.items(TenantRow, rows, COLUMNS)
    if not rows:
        run.note("No tenants yet. Make one with:  headrace tenant create NAME")
