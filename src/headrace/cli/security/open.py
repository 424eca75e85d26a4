"""Command: `headrace security open`."""

from __future__ import annotations

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.security_view import SecurityRow, set_mode


@leaf(SecurityRow, Shape.ONE, http=True, confirms=True)
def command(run: Invocation) -> None:
    """Turn authentication and rights off. Whoever reaches the broker may do everything."""
    run.confirm("let everybody who reaches the broker do everything")
    set_mode(run, "open")
