"""Command: `headrace quota delete`."""

from __future__ import annotations

from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.quota_view import COLUMNS, CONSUME, PRODUCE, REQUESTS, QuotaRow, change, quotas, whom


@leaf(QuotaRow, Shape.ITEMS, broker=True)
@whom
def command(run: Invocation, user: str | None, client_id: str | None) -> None:
    """Take a quota away, all of it."""
    held = [row for row in quotas(run) if (row.user, row.client_id) == (user, client_id)]
    if not held:
        raise Failure(Exit.NOT_FOUND, "there is no such quota", "headrace quota list")
    limits = {PRODUCE: held[0].produce, CONSUME: held[0].consume, REQUESTS: held[0].requests}
    change(run, user, client_id, {key: None for key, value in limits.items() if value is not None})
    run.output.items(QuotaRow, held, COLUMNS)
