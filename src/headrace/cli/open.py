"""Command: `headrace open`."""

from __future__ import annotations

import webbrowser
from typing import ClassVar

import click

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape


class OpenRow(Row):
    SCHEMA: ClassVar[str] = "headrace.open/v1"
    NAME: ClassVar[str] = "url"
    url: str


@leaf(OpenRow, Shape.ONE, http=True)
@click.option("--print", "only_print", is_flag=True, help="Only print the address.")
def command(run: Invocation, only_print: bool) -> None:
    """Open the web console, logged in.

    With a user and a password (HEADRACE_USER, HEADRACE_PASSWORD) the address logs in once, within a minute.
    """
    if run.profile.user or run.profile.token_file:
        path = run.http.ask("POST", "/api/v1/session/links")["path"]
    else:
        run.http.ask("GET", "/api/v1/session")
        path = "/console"
    url = run.http.address + path
    shown = only_print or not webbrowser.open(url)
    run.output.one(OpenRow(url=url), lambda: url if shown else "")
