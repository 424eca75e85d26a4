"""Command: `headrace quota list`."""

from __future__ import annotations

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.quota_view import COLUMNS, QuotaRow, quotas


@leaf(QuotaRow, Shape.ITEMS, broker=True)
def command(run: Invocation) -> None:
    """List quotas. Of all that fit somebody the most specific one counts."""
    rows = quotas(run)
    run.output.items(QuotaRow, rows, COLUMNS)
    if not rows:
        run.note("No quotas yet. Set one with:  headrace quota set")
