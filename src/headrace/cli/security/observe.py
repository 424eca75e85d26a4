"""Command: `headrace security observe`."""

from __future__ import annotations

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.security_view import SecurityRow, set_mode


@leaf(SecurityRow, Shape.ONE, http=True)
def command(run: Invocation) -> None:
    """Ask for names and note what would be denied; refuse nothing.

    `headrace security status` shows what was seen, `headrace acl suggest` writes the rights that were used.
    """
    set_mode(run, "observe")
