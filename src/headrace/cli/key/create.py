"""Command: `headrace key create`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_users
from headrace.cli.invocation import Invocation
from headrace.cli.key_view import KEYS, KeyRow, key_row
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape


@leaf(KeyRow, Shape.ONE, http=True)
@click.option("--label", default="", help="What it is for.")
@click.option(
    "--user", default="", shell_complete=complete_users, help="Somebody else's; your own otherwise."
)
def command(run: Invocation, label: str, user: str) -> None:
    """Make an access key, and show its secret once, as ~/.aws/credentials wants it. It may what its user may, over SQS."""
    row = key_row(run.http.ask("POST", KEYS, {"name": label, "owner": user}))
    run.output.one(row, lambda: f"aws_access_key_id = {row.id}\naws_secret_access_key = {row.secret}")
