"""Command: `headrace tenant create`."""

from __future__ import annotations

import click

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Number, Size
from headrace.cli.tenant_view import TENANTS, TenantRow, tenant_row


@leaf(TenantRow, Shape.ONE, http=True)
@click.argument("name")
@click.option("--produce", type=Size(), help="At most so many bytes in a second, as in 10MB.")
@click.option("--consume", type=Size(), help="At most so many bytes out a second.")
@click.option(
    "--requests", type=click.FloatRange(0.01), help="At most so much of a broker's time, in percent."
)
@click.option(
    "--days", type=Number(1, 3650), default=90, show_default=True, help="How long its token is good."
)
@click.option("--adopt", is_flag=True, help="Topics that are called so already become its own.")
def command(
    run: Invocation,
    name: str,
    produce: int | None,
    consume: int | None,
    requests: float | None,
    days: int,
    adopt: bool,
) -> None:
    """Make a tenant, and show its token once.

    Everything whose name begins with NAME and a dot is its own: topics, queues, groups, transactional ids. It sees nothing else.
    """
    body = {
        "name": name, "produce": produce, "consume": consume, "requests": requests, "days": days, "adopt": adopt,
    }  # fmt: skip
    row = tenant_row(run.http.ask("POST", TENANTS, body))
    run.output.one(row, lambda: row.token or "")
    run.done(f"Created tenant {name}: everything that begins with {row.prefix}")
