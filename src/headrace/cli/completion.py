"""Command: `headrace completion`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape


class CompletionRow(Row):
    SCHEMA: ClassVar[str] = "headrace.completion/v1"
    NAME: ClassVar[str] = "shell"
    shell: str
    script: str


@leaf(CompletionRow, Shape.ONE)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(run: Invocation, shell: str) -> None:
    """Print the completion script of a shell. Names of topics and groups are completed too.

    \b
    bash:  eval "$(headrace completion bash)"          in ~/.bashrc
    zsh:   eval "$(headrace completion zsh)"           in ~/.zshrc
    fish:  headrace completion fish > ~/.config/fish/completions/headrace.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    # click's own `source` starts bash to ask its version; the template alone needs no bash here.
    completing = kind(root, {}, "headrace", "_HEADRACE_COMPLETE")
    script = completing.source_template % completing.source_vars()
    run.output.one(CompletionRow(shell=shell, script=script), lambda: script)
