"""Command: `headrace security init`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import ClassVar

import click

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.parameters import Number
from headrace.cli.profile import settings_failure
from headrace.cli.secure_start import secure_files
from headrace.node.settings import SettingsError, default_files, load_settings
from headrace.security.founding import initialise


class SecurityInitRow(Row):
    SCHEMA: ClassVar[str] = "headrace.security.init/v1"
    NAME: ClassVar[str] = "directory"
    directory: str
    made: list[str]
    """Files that were not there before, or not good enough."""


@leaf(SecurityInitRow, Shape.ONE)
@click.option("--hosts", default="", help="Names and addresses of the brokers, with commas.")
@click.option(
    "--brokers",
    type=Number(1, 1000),
    default=1,
    show_default=True,
    help="Certificates for so many brokers.",
)
@click.option(
    "--directory", type=click.Path(file_okay=False), help="Where; security in the data directory otherwise."
)
def command(run: Invocation, hosts: str, brokers: int, directory: str | None) -> None:
    """Make what a secured cluster needs.

    An authority, a certificate for each broker, an administrator's password. What is there stays. Brokers find it with --security-dir; `serve --secure` does all of this by itself.
    """
    try:
        settings = load_settings({"security_dir": directory}, os.environ, default_files()).settings
    except SettingsError as error:
        raise settings_failure(error) from None
    files = secure_files(settings)
    named = [host.strip() for host in hosts.split(",") if host.strip()]
    made = initialise(files, named, range(1, brokers + 1), time.time_ns() // 1_000_000)
    row = SecurityInitRow(directory=str(files.directory), made=[str(Path(path)) for path in made])
    run.output.one(row, lambda: "\n".join(row.made) or "everything is there already")
    run.done(
        f"{files.directory}: copy it to each broker (ca.key stays here), then: headrace serve --secure --security-dir …"
    )
