"""Command: how the commands reach a broker, from all the places where that can be said.

flag > context of --context > HEADRACE_… > context of HEADRACE_CONTEXT > [client] in headrace.toml > context in use > user config > default

A context says all of it: addresses, user, trust. Whoever names the Kafka address most strongly without an HTTP address beside it
means the broker that is there: its HTTP address is asked for (`url` is empty then; cli/http_address.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from headrace.cli.contexts import Contexts
from headrace.cli.failure import Exit, Failure
from headrace.node.settings import (
    CLIENT_TABLE,
    Layer,
    LoadedSettings,
    SettingsError,
    default_files,
    environment_layers,
    file_layer,
    flag_layer,
    merge_layers,
)

CONTEXT_VARIABLE = "HEADRACE_CONTEXT"
LOG_IN = (
    "log in:  headrace login\nor say who you are: HEADRACE_USER and HEADRACE_PASSWORD_FILE, or --context NAME"
)


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the commands that talk to a broker: flags, HEADRACE_ variables, and keys of the [client] table."""

    bootstrap: str = "localhost:9092"
    """Kafka address of the broker, or several with commas: the first that answers is taken."""
    url: str = "http://localhost:9324"
    """HTTP address of the broker, or several with commas; learned from the broker where only its Kafka address is said."""
    user: str = ""
    """Who the commands are, where a broker asks for it; the password is in password_file or HEADRACE_PASSWORD."""
    password_file: str = ""
    """A file with the user's password, readable by nobody else."""
    token_file: str = ""
    """A file with a token of the user's, readable by nobody else; instead of a user and a password."""
    tls_ca: str = ""
    """Certificates that the commands trust, PEM; given, they speak TLS with the broker."""
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=3_600_000)] = 10_000
    """How long to wait for an answer."""
    output: Literal["table", "wide", "json", "jsonl", "yaml", "csv", "name"] = "table"
    """How results are printed."""

    @property
    def password(self) -> str:
        """A29: never from the command line."""
        if not self.password_file:
            return os.environ.get("HEADRACE_PASSWORD", "")
        return read_secret(self.password_file, "a password")

    @property
    def token(self) -> str:
        return read_secret(self.token_file, "a token").strip()


def read_secret(file: str, what: str) -> str:
    path = Path(file).expanduser()
    try:
        if path.stat().st_mode & 0o077:
            raise Failure(Exit.DENIED, f"{path} holds {what} and can be read by others", f"chmod 600 {path}")
        return path.read_text().rstrip("\n")
    except OSError as problem:
        raise Failure(
            Exit.USAGE, f"{path}: {(problem.strerror or '').lower()}", "check password_file and token_file"
        ) from None


class Chosen(NamedTuple):
    """Which context counts."""

    name: str
    """Empty: none."""
    by: str
    """`--context`, HEADRACE_CONTEXT, or `use`."""


def chosen_context(flags: Mapping[str, Any]) -> Chosen:
    if flags.get("context"):
        return Chosen(flags["context"], "--context")
    if os.environ.get(CONTEXT_VARIABLE):
        return Chosen(os.environ[CONTEXT_VARIABLE], CONTEXT_VARIABLE)
    return Chosen(Contexts().in_use, "use")


def load_profile(flags: Mapping[str, Any]) -> Profile:
    return profile_layers(flags).settings


def profile_layers(flags: Mapping[str, Any]) -> LoadedSettings[Profile]:
    context = chosen_context(flags)
    own = []
    if context.name:
        own = [Layer(Contexts().need(context.name).values(), f"context {context.name}")]
    user, project = (file_layer(path, CLIENT_TABLE) for path in default_files())
    layers = [
        user,
        *(own if context.by == "use" else []),
        project,
        *(own if context.by == CONTEXT_VARIABLE else []),
        *environment_layers(Profile, os.environ),
        *(own if context.by == "--context" else []),
        flag_layer({name: value for name, value in flags.items() if name != "context"}),
    ]
    try:
        loaded = merge_layers(Profile, layers)
    except SettingsError as error:
        raise settings_failure(error) from None
    if loaded.settings.token_file and _strength(layers, "user") > _strength(layers, "token_file"):
        # Who says more strongly who they are does not mean somebody's token.
        loaded = LoadedSettings(msgspec.structs.replace(loaded.settings, token_file=""), loaded.origins)
    if not loaded.settings.url or _strength(layers, "bootstrap") > _strength(layers, "url"):
        origins = {**loaded.origins, "url": f"learned from {loaded.settings.bootstrap}"}
        loaded = LoadedSettings(msgspec.structs.replace(loaded.settings, url=""), origins)
    return loaded


def _strength(layers: list[Layer], name: str) -> int:
    """Of the strongest layer that says it. All variables are one place."""
    variables = [at for at, layer in enumerate(layers) if layer.origin.startswith("HEADRACE_")]
    found = max((at for at, layer in enumerate(layers) if name in layer.values), default=-1)
    return variables[-1] if found in variables else found


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
