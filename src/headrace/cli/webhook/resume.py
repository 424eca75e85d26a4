"""Command: `headrace webhook resume`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_webhooks
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.webhook_view import WebhookRow, path_of, webhook_row


@leaf(WebhookRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_webhooks)
def command(run: Invocation, name: str) -> None:
    """Send again after a pause, or after the endpoint said it was gone."""
    row = webhook_row(run.http.ask("POST", path_of(name, "resume"), {}))
    run.output.one(row, lambda: "")
    run.done(f"The webhook {name} is {row.state}.")
