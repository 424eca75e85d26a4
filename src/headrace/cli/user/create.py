"""Command: `headrace user create`."""

from __future__ import annotations

import click

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Number
from headrace.cli.user_view import USERS, UserRow, new_password, scram_records, user_row, warn_of_open_mode


@leaf(UserRow, Shape.ONE, http=True)
@click.argument("name")
@click.option("--super", "is_super", is_flag=True, help="An administrator: no right binds it.")
@click.option(
    "--password-file", type=click.Path(exists=True, dir_okay=False), help="Its password is in this file."
)
@click.option("--generate", is_flag=True, help="Make a password up, and show it once.")
@click.option("--iterations", type=Number(4096, 100_000), default=8192, show_default=True, help="Of SCRAM.")
def command(
    run: Invocation, name: str, is_super: bool, password_file: str | None, generate: bool, iterations: int
) -> None:
    """Make a user.

    The password comes from a prompt, a file or HEADRACE_NEW_PASSWORD. The broker keeps only what SCRAM needs of it.
    """
    password = new_password(run, password_file, generate)
    body = {"name": name, "scram": scram_records(password, iterations), "super": is_super}
    row = user_row(run.http.ask("POST", USERS, body))
    if generate:
        row.password = password
    run.output.one(row, lambda: f"password: {password}" if generate else "")
    run.done(f"Created user {name}" + (", a super user" if is_super else ""))
    warn_of_open_mode(run)
