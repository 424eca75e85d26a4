"""Command: `headrace login`."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import ClassVar

import click
import msgspec

from headrace.cli.completing import complete_contexts, complete_users
from headrace.cli.contexts import LOCAL, Context, Contexts
from headrace.cli.failure import Exit, Failure
from headrace.cli.http_link import HttpLink, HttpLogin
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.parameters import Number
from headrace.cli.profile import chosen_context, read_secret
from headrace.cli.token_view import TOKENS, TokenRow, token_row


class LoginRow(Row):
    SCHEMA: ClassVar[str] = "headrace.login/v1"
    NAME: ClassVar[str] = "context"
    context: str
    """Where it is kept, and what commands use from now on."""
    user: str
    kept: str
    """`token`: one of the user's, which ends by itself; `password`: over a plain connection a token could be read by others."""
    expires_ms: int | None


@leaf(LoginRow, Shape.ONE, http=True)
@click.option("--user", default="", shell_complete=complete_users, help="Who you are there.")
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False),
    help="The password is in this file, readable by nobody else; a prompt or HEADRACE_PASSWORD otherwise.",
)
@click.option("--days", type=Number(1, 3650), default=30, show_default=True, help="How long it is good.")
@click.option(
    "--as",
    "name",
    default="",
    shell_complete=complete_contexts,
    help="Keep it in this context; in the one that is used otherwise.",
)
def command(run: Invocation, user: str, password_file: str | None, days: int, name: str) -> None:
    """Log in, and stay logged in.

    With TLS a token of yours is kept, in a file that only you can read, and the password is not. `headrace logout` ends it.
    """
    profile = run.profile
    user = user or profile.user or _asked(run)
    login = HttpLogin(user, _password(run, user, password_file))
    link = HttpLink(profile, login)
    if link.ask("GET", "/api/v1/session")["mode"] == "open":
        raise Failure(
            Exit.CONFLICT, "this broker asks nobody who they are", "headrace security init gives it users"
        )
    contexts, kept_in = Contexts(), name or chosen_context(run.flags).name or LOCAL
    known = contexts.find(kept_in)
    context = known or Context(bootstrap=profile.bootstrap)
    way = {"bootstrap": profile.bootstrap, "url": profile.url, "tls_ca": _absolute(profile.tls_ca)}
    context = msgspec.structs.replace(
        context, **way, user=user, password_file="", token_file="", kept_by="" if name else context.kept_by
    )
    token: TokenRow | None = None
    if profile.tls_ca:
        body = {"name": f"headrace login on {socket.gethostname()}"[:100], "days": days}
        token = token_row(link.ask("POST", TOKENS, body))
        path = contexts.keep_secret(kept_in, "token", token.token or "")
        context = msgspec.structs.replace(context, token_file=str(path))
    else:
        link.ask("GET", TOKENS)  # is it the right one?
        path = contexts.keep_secret(kept_in, "password", login.password)
        context = msgspec.structs.replace(context, password_file=str(path))
    contexts.keep(kept_in, context)
    contexts.use(kept_in)
    run.output.one(
        LoginRow(
            context=kept_in,
            user=user,
            kept="token" if token else "password",
            expires_ms=token.expires_ms if token else None,
        ),
        lambda: "",
    )
    run.done(f"Logged in as {user}; context {kept_in} is in use")


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute()) if path else ""


def _asked(run: Invocation) -> str:
    if not run.interactive:
        raise Failure(Exit.USAGE, "who are you?", "--user NAME")
    return str(click.prompt("User", err=True))


def _password(run: Invocation, user: str, file: str | None) -> str:
    if file is not None:
        return read_secret(file, "a password")
    if "HEADRACE_PASSWORD" in os.environ:
        return os.environ["HEADRACE_PASSWORD"]
    if not run.interactive:
        raise Failure(
            Exit.USAGE,
            "there is no password",
            "--password-file FILE, or HEADRACE_PASSWORD in the environment",
        )
    return str(click.prompt(f"Password of {user}", hide_input=True, err=True))
