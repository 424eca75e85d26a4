"""Command: `headrace webhook rotate`."""

from __future__ import annotations

from typing import Any, ClassVar

import click

from headrace.cli.completing import complete_webhooks
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.parameters import Duration
from headrace.cli.webhook_view import SECRET_VARIABLE, given_secret, path_of


class RotatedRow(Row):
    SCHEMA: ClassVar[str] = "headrace.webhook.rotate/v1"
    name: str
    secret: str
    """Shown once."""
    overlap_ms: int


@leaf(RotatedRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_webhooks)
@click.option(
    "--overlap", "overlap_ms", type=Duration(), default="24h", show_default=True,
    help="For so long requests carry a signature under the old secret, too.",
)  # fmt: skip
@click.option(
    "--secret-file", type=click.Path(dir_okay=False),
    help=f"Take the whsec_… in this file (or in {SECRET_VARIABLE}) instead of a new one.",
)  # fmt: skip
def command(run: Invocation, name: str, overlap_ms: int, secret_file: str | None) -> None:
    """Make a new signing secret. The old one keeps signing beside it for a while."""
    body: dict[str, Any] = {"overlap_ms": overlap_ms}
    secret = given_secret(secret_file)
    if secret is not None:
        body["secret"] = secret
    made = run.http.ask("POST", path_of(name, "rotate-secret"), body)
    row = RotatedRow(name=name, secret=made["secret"], overlap_ms=made["overlap_ms"])
    run.output.one(row, lambda: row.secret)
    run.done("The secret above is not shown again.")
