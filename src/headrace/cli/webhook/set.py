"""Command: `headrace webhook set`."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli.completing import complete_webhooks
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Duration, Number, Rate
from headrace.cli.webhook.add import CONFIRM_MS, FORMS
from headrace.cli.webhook_view import WebhookRow, path_of, webhook_row


@leaf(WebhookRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_webhooks)
@click.option("--to", "endpoint", metavar="URL", help="Another endpoint, which has to confirm.")
@click.option("--form", type=click.Choice(FORMS), help="What the endpoint gets.")
@click.option("--batch", "batch_size", type=Number(1, 100), help="Up to so many messages in one request.")
@click.option("--batch-wait", "batch_wait_ms", type=Duration(), help="How long a batch waits to be full.")
@click.option(
    "--request-timeout", "timeout_ms", type=Duration(), help="How long the endpoint may take, at most 30s."
)
@click.option("--max-concurrency", type=Number(1, 256), help="Never more requests at once than this.")
@click.option("--rate", type=Rate(), help="Never more requests than this, as in 50/s.")
@click.option("--no-rate", is_flag=True, help="As fast as the endpoint takes them.")
def command(run: Invocation, name: str, endpoint: str | None, no_rate: bool, **options: Any) -> None:
    """Change a webhook. What is not named stays as it is."""
    body = {key: value for key, value in options.items() if value is not None}
    if endpoint is not None:
        body["url"] = endpoint
    if no_rate:
        body["rate"] = 0
    if not body:
        raise Failure(Exit.USAGE, "nothing to change", "headrace webhook set --help")
    row = webhook_row(run.http.ask("PATCH", path_of(name), body, wait_ms=CONFIRM_MS))
    run.output.one(row, lambda: "")
    run.done(f"Changed the webhook {name}.")
