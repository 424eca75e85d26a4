"""Command: `headrace webhook confirm`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_webhooks
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.webhook_view import WebhookRow, path_of, webhook_row


@leaf(WebhookRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_webhooks)
@click.argument("token")
def command(run: Invocation, name: str, token: str) -> None:
    """Confirm an endpoint with the token it was sent, when it can't say it back by itself."""
    row = webhook_row(run.http.ask("POST", path_of(name, "confirm"), {"token": token}))
    run.output.one(row, lambda: "")
    run.done(f"{row.url} is confirmed.")
