"""Command: users as commands show them, and passwords that never come from the command line (A29)."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any, ClassVar

import click

from headrace.cli.failure import Exit, Failure
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.output import Row

USERS = "/api/v1/security/users"
VARIABLE = "HEADRACE_NEW_PASSWORD"


class UserRow(Row):
    SCHEMA: ClassVar[str] = "headrace.user/v1"
    name: str
    enabled: bool
    mechanisms: list[str]
    super: bool = False
    """No right binds it."""
    password: str | None = None
    """Only when it was made up here (--generate): it is shown once."""


def user_row(found: dict[str, Any]) -> UserRow:
    return UserRow(
        name=found["name"], enabled=found["enabled"], mechanisms=found["mechanisms"], super=found["super"]
    )


def path_of(name: str, *rest: str) -> str:
    return "/".join((USERS, part(name), *rest))


def new_password(run: Invocation, file: str | None, generate: bool) -> str:
    """From a file, the environment or a prompt; or made up."""
    if generate:
        return secrets.token_urlsafe(18)
    if file is not None:
        return _usable(Path(file).read_text().rstrip("\n"))
    if VARIABLE in os.environ:
        return _usable(os.environ[VARIABLE])
    if not run.interactive:
        raise Failure(
            Exit.USAGE,
            "there is no password",
            f"--password-file FILE, {VARIABLE} in the environment, or --generate to have one made up",
        )
    return _usable(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))


def _usable(password: str) -> str:
    if not password or len(password) > 1_024 or not password.isprintable():
        raise Failure(Exit.USAGE, "a password has 1 to 1024 characters that can be seen")
    return password


def scram_records(password: str, iterations: int) -> dict[str, dict[str, Any]]:
    """What a broker keeps of a password: nothing from which it could be had back."""
    import base64

    from headrace.security.scram import HASHES, SALT_BYTES, record_of, salted_password

    made = {}
    for mechanism in HASHES:
        salt = secrets.token_bytes(SALT_BYTES)
        record = record_of(
            mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations
        )
        made[mechanism] = {
            "salt": base64.b64encode(record.salt).decode(),
            "iterations": record.iterations,
            "stored_key": base64.b64encode(record.stored_key).decode(),
            "server_key": base64.b64encode(record.server_key).decode(),
        }
    return made


def warn_of_open_mode(run: Invocation) -> None:
    """A33: silence would mislead."""
    if run.http.ask("GET", "/api/v1/security")["mode"] == "open":
        run.warn(
            "authentication is off: this user protects nothing yet (headrace security observe, then enforce)"
        )
