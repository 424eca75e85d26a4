"""Command: `headrace doctor`."""

from __future__ import annotations

import os

import click

from headrace.cli.checks import CheckRow, all_checks
from headrace.cli.failure import Exit
from headrace.cli.http_address import addressed
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Output, Shape, column, printable
from headrace.cli.profile import settings_failure
from headrace.node.settings import SettingsError, default_files, load_settings

_STYLE = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}
_INDENT = 22


@leaf(CheckRow, Shape.ITEMS, broker=True)
@click.option("--url", help="HTTP address of the broker.")
@click.option("--data-dir", help="Of the broker that is to be checked.")
@click.option("--coordinator", help="Of the broker that is to be checked.")
def command(run: Invocation, url: str | None, data_dir: str | None, coordinator: str | None) -> Exit:
    """Check this machine and the broker, with a hint for whatever is wrong.

    Ends with 1 when something is wrong; warnings alone are no failure.
    """
    try:
        flags = {"data_dir": data_dir, "coordinator": coordinator}
        settings = load_settings(flags, os.environ, default_files()).settings
    except SettingsError as error:
        raise settings_failure(error) from None
    if url is not None:
        run.flags["url"] = url
    rows = []
    for row in all_checks(settings, addressed(run.profile)):
        rows.append(row)
        if run.output.for_people:
            _show(run.output, row)
    if not run.output.for_people:
        run.output.items(CheckRow, rows, [column("CHECK", "name")])
    return Exit.FAILED if any(row.status == "fail" for row in rows) else Exit.OK


def _show(output: Output, row: CheckRow) -> None:
    word, colour = _STYLE[row.status]
    click.echo(f"{output.styled(word, fg=colour)}  {row.name:<15} {output.wrapped(row.detail, _INDENT)}")
    if row.hint:
        # Not wrapped: a command in it is there to be copied.
        click.echo(f"{'':<{_INDENT}}hint: {printable(row.hint)}")
