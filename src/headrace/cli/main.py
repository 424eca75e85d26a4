"""Command: `headrace`, with its nouns loaded only when they are asked for, so that it starts at once."""

from __future__ import annotations

import importlib

import click

from headrace import __version__

NOUNS = {
    "serve": "serve",
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = NOUNS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = importlib.import_module(f"headrace.cli.{module}").command
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="headrace %(version)s")
def main() -> None:
    """One durable log with many doors: Kafka, SQS, REST, Spark."""
