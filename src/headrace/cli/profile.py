"""Command: how the commands reach a broker: flag > HEADRACE_… > [client] in headrace.toml > user config > default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from headrace.cli.failure import Exit, Failure
from headrace.node.settings import CLIENT_TABLE, Loaded, SettingsError, default_files, load_layers


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the commands that talk to a broker: flags, HEADRACE_ variables, and keys of the [client] table."""

    bootstrap: str = "localhost:9092"
    """Kafka address of the broker, or several with commas."""
    url: str = "http://localhost:9324"
    """HTTP address of the broker."""
    user: str = ""
    """Who the commands are, where a broker asks for it; the password is in password_file or HEADRACE_PASSWORD."""
    password_file: str = ""
    """A file with the user's password, readable by nobody else."""
    tls_ca: str = ""
    """Certificates that the commands trust, PEM; given, they speak TLS with the broker."""
    timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    """How long to wait for an answer."""
    output: Literal["table", "wide", "json", "jsonl", "csv", "name"] = "table"
    """How results are printed."""

    @property
    def password(self) -> str:
        """A29: never from the command line."""
        if not self.password_file:
            return os.environ.get("HEADRACE_PASSWORD", "")
        path = Path(self.password_file).expanduser()
        try:
            if path.stat().st_mode & 0o077:
                raise Failure(
                    Exit.DENIED, f"{path} holds a password and can be read by others", f"chmod 600 {path}"
                )
            return path.read_text().rstrip("\n")
        except OSError as problem:
            raise Failure(
                Exit.USAGE, f"{path}: {(problem.strerror or '').lower()}", "check password_file"
            ) from None


def load_profile(flags: Mapping[str, Any]) -> Profile:
    return profile_layers(flags).settings


def profile_layers(flags: Mapping[str, Any]) -> Loaded[Profile]:
    try:
        return load_layers(Profile, flags, os.environ, default_files(), table=CLIENT_TABLE)
    except SettingsError as error:
        raise settings_failure(error) from None


def settings_failure(error: SettingsError) -> Failure:
    """All problems at once."""
    if len(error.problems) == 1:
        return Failure(
            Exit.USAGE, error.problems[0], "headrace serve --help lists the settings", code="INVALID_SETTINGS"
        )
    listed = "".join(f"\n  - {problem}" for problem in error.problems)
    return Failure(
        Exit.USAGE,
        f"{len(error.problems)} settings are wrong:{listed}",
        "headrace serve --help lists the settings",
        code="INVALID_SETTINGS",
    )
