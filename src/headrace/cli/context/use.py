"""Command: `headrace context use`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_contexts
from headrace.cli.context_view import ContextRow, context_row
from headrace.cli.contexts import Contexts
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape


@leaf(ContextRow, Shape.ONE)
@click.argument("name", shell_complete=complete_contexts)
def command(run: Invocation, name: str) -> None:
    """Use a context from now on. `-` is the one before.

    HEADRACE_ variables and headrace.toml of a project are stronger; --context is stronger than both.
    """
    contexts = Contexts()
    if name == "-":
        name = contexts.previous
        if not name:
            raise Failure(Exit.NOT_FOUND, "no context was used before this one", "headrace context list")
    context = contexts.need(name)
    contexts.use(name)
    row = context_row(name, context, name)
    run.output.one(row, lambda: "")
    run.done(f"Using {name} ({context.bootstrap})")
