"""Command: `headrace security enforce`."""

from __future__ import annotations

import click

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.security_view import SecurityRow, set_mode


@leaf(SecurityRow, Shape.ONE, http=True)
@click.option("--force", is_flag=True, help="Even if that locks somebody out who came within the last hour.")
def command(run: Invocation, force: bool) -> None:
    """Refuse whoever has no name, and whatever has no right. Takes effect at once, without a restart."""
    set_mode(run, "enforced", force=force)
