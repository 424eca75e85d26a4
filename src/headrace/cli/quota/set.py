"""Command: `headrace quota set`."""

from __future__ import annotations

import click

from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Size
from headrace.cli.quota_view import COLUMNS, CONSUME, PRODUCE, REQUESTS, QuotaRow, change, whom


@leaf(QuotaRow, Shape.ITEMS, broker=True)
@whom
@click.option("--produce", type=Size(), help="At most so many bytes in a second, as in 10MB.")
@click.option("--consume", type=Size(), help="At most so many bytes out a second.")
@click.option(
    "--requests",
    type=click.FloatRange(0.01),
    help="At most so much of the broker's time, in percent of a core.",
)
def command(
    run: Invocation,
    user: str | None,
    client_id: str | None,
    produce: int | None,
    consume: int | None,
    requests: float | None,
) -> None:
    """Limit a user, a client id, or everybody else.

    At every broker, over Kafka, REST and SQS together. Who is over it waits; nothing is refused at the Kafka port, over HTTP the answer is 429 with Retry-After.
    """
    given: dict[str, float | None] = {PRODUCE: produce, CONSUME: consume, REQUESTS: requests}
    values = {key: value for key, value in given.items() if value is not None}
    if not values:
        raise Failure(Exit.USAGE, "how much?", "--produce 10MB, --consume 20MB or --requests 50")
    run.output.items(QuotaRow, change(run, user, client_id, values), COLUMNS)
