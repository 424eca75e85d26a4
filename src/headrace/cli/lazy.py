"""Command: groups whose commands are imported only when they are asked for, so that every command starts at once."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import click

from headrace.cli.failure import did_you_mean


class LazyGroup(click.Group):
    """`table` maps a command to the one line that help shows; its module is `package.command`, loaded on demand.

    The module has `command`; or it is a package with its own `VERBS` table, and then it is a group.
    """

    def __init__(self, *args: Any, package: str, table: dict[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._package = package
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        path = f"{self._package}.{cmd_name.replace('-', '_')}"
        module = importlib.import_module(path)
        if hasattr(module, "VERBS"):
            return LazyGroup(
                cmd_name,
                package=path,
                table=module.VERBS,
                help=module.HELP,
                short_help=self._table[cmd_name],
                context_settings={"help_option_names": ["-h", "--help"]},
            )
        command: click.Command = module.command
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table alone: `--help` imports nothing."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._table.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._table and not args[0].startswith("-"):
            path = ctx.command_path
            meant = self._verb_elsewhere(path, args[0]) or did_you_mean(args[0], self._table)
            raise click.UsageError(
                f'there is no command "{path} {args[0]}"' + (f"; {meant}" if meant else ""), ctx
            )
        return super().resolve_command(ctx, args)

    def _verb_elsewhere(self, path: str, verb: str) -> str:
        """`headrace produce`: a verb without its noun, as in other tools. Packages hold tables only, so this is cheap."""
        owners = []
        for noun in self._table:
            module = importlib.util.find_spec(f"{self._package}.{noun.replace('-', '_')}")
            if module is not None and module.submodule_search_locations:
                verbs = getattr(importlib.import_module(module.name), "VERBS", {})
                owners += [f'"{path} {noun} {verb}"'] if verb in verbs else []
        return f"did you mean {' or '.join(owners)}?" if owners else ""
