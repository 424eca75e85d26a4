"""Command: `headrace context show`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_contexts
from headrace.cli.context_view import ContextRow, context_row, shown
from headrace.cli.contexts import Contexts
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.profile import chosen_context


@leaf(ContextRow, Shape.ONE)
@click.argument("name", required=False, shell_complete=complete_contexts)
def command(run: Invocation, name: str | None) -> None:
    """Show a context, or the one that counts here. No password is shown."""
    contexts = Contexts()
    chosen = name or chosen_context({}).name
    if not chosen:
        raise Failure(
            Exit.NOT_FOUND,
            "no context is in use: commands go where headrace.toml, HEADRACE_ variables or the default say",
            "headrace config show --origin; headrace context add NAME -b HOST:PORT",
            code="NO_CONTEXT",
        )
    row = context_row(chosen, contexts.need(chosen), contexts.in_use)
    run.output.one(row, lambda: shown(row))
