"""Command: `headrace webhook add`."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from headrace.cli.completing import complete_queues, complete_queues_and_subscriptions, complete_topics
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Duration, Number, Rate
from headrace.cli.webhook_view import SECRET_VARIABLE, NewWebhookRow, given_secret

CONFIRM_MS = 10_000
FORMS = ["json", "raw", "cloudevents", "cloudevents-structured"]


@leaf(NewWebhookRow, Shape.ONE, http=True)
@click.argument("queue", shell_complete=complete_queues_and_subscriptions)
@click.argument("endpoint", metavar="URL")
@click.option("--name", help="The webhook's name; the queue's when it is free.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete_topics,
    help="Make QUEUE: a subscription over this topic, for this webhook alone. May be given several times.",
)
@click.option("--filter", "filter_text", default="", help="With --topic: only messages that match.")
@click.option(
    "--from", "start", type=click.Choice(["earliest", "latest"]), default="latest", show_default=True,
    help="With --topic: where to begin.",
)  # fmt: skip
@click.option("--fifo", is_flag=True, help="With --topic: keep the order of each key.")
@click.option(
    "--dlq",
    "dead_letter",
    metavar="QUEUE",
    shell_complete=complete_queues,
    help="With --topic: where messages go that failed too often.",
)
@click.option("--max-receives", type=Number(1), help="With --dlq: so many attempts.")
@click.option("--form", type=click.Choice(FORMS), help="What the endpoint gets.")
@click.option("--batch", "batch_size", type=Number(1, 100), help="Up to so many messages in one request.")
@click.option("--batch-wait", "batch_wait_ms", type=Duration(), help="How long a batch waits to be full.")
@click.option(
    "--request-timeout", "timeout_ms", type=Duration(), help="How long the endpoint may take, at most 30s."
)
@click.option("--max-concurrency", type=Number(1, 256), help="Never more requests at once than this.")
@click.option("--rate", type=Rate(), help="Never more requests than this, as in 50/s.")
@click.option(
    "--secret-file", type=click.Path(dir_okay=False),
    help=f"Sign with the whsec_… in this file (or in {SECRET_VARIABLE}) instead of a new one.",
)  # fmt: skip
def command(
    run: Invocation,
    queue: str,
    endpoint: str,
    name: str | None,
    topics: tuple[str, ...],
    filter_text: str,
    start: str,
    fifo: bool,
    dead_letter: str | None,
    max_receives: int | None,
    secret_file: str | None,
    **options: Any,
) -> None:
    """Push a queue to a URL. The endpoint has to confirm first: it says the token back that it is sent.

    \b
    headrace webhook add jobs https://example.com/hook
    headrace webhook add audit https://example.com/hook --topic orders --filter "value.amount > 100"
    """
    body: dict[str, Any] = {
        "queue": queue,
        "url": endpoint,
        **{k: v for k, v in options.items() if v is not None},
    }
    if name is not None:
        body["name"] = name
    if topics:
        body |= {"topics": list(topics), "start": start}
    if filter_text:
        body["filter"] = filter_text
    if fifo:
        body["fifo"] = True
    if dead_letter is not None:
        body |= {"dead_letter": dead_letter, "max_deliveries": max_receives or 5}
    secret = given_secret(secret_file)
    if secret is not None:
        body["secret"] = secret
    row = msgspec.convert(run.http.ask("POST", "/api/v1/webhooks", body, wait_ms=CONFIRM_MS), NewWebhookRow)
    run.output.one(row, lambda: row.secret)
    if row.state == "active":
        run.done(f"{row.url} confirmed. The secret above signs every request and is not shown again.")
    else:
        run.done("Added. The secret above signs every request and is not shown again.")
        why = f": {row.reason}" if row.reason else ""
        run.warn(
            f"the endpoint has not confirmed yet{why}; ask again with:  headrace webhook test {row.name}"
        )
