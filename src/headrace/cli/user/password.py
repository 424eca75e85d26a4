"""Command: `headrace user password`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_users
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Number
from headrace.cli.user_view import UserRow, new_password, path_of, scram_records, user_row


@leaf(UserRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_users)
@click.option(
    "--password-file", type=click.Path(exists=True, dir_okay=False), help="The password is in this file."
)
@click.option("--generate", is_flag=True, help="Make a password up, and show it once.")
@click.option("--iterations", type=Number(4096, 100_000), default=8192, show_default=True, help="Of SCRAM.")
def command(run: Invocation, name: str, password_file: str | None, generate: bool, iterations: int) -> None:
    """Give a user another password. Connections that are open stay open."""
    password = new_password(run, password_file, generate)
    body = {"scram": scram_records(password, iterations)}
    row = user_row(run.http.ask("PUT", path_of(name, "password"), body))
    if generate:
        row.password = password
    run.output.one(row, lambda: f"password: {password}" if generate else "")
    run.done(f"{name} has a new password")
