"""Adapter: contexts: named ways to a broker, in the user's config directory. One file each, and which of them is in use.

contexts/prod.toml        0600: addresses, who we are, whom we trust
contexts/prod.password    0600: only when the password was typed in; a file of somebody else's is named, not copied
contexts/prod.token       0600: what `headrace login` got
contexts/in-use           the name of the one that commands use, and of the one before it
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tomllib
from pathlib import Path

import msgspec
import platformdirs

from headrace.cli.failure import Exit, Failure, did_you_mean

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LOCAL = "local"


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the same names of a Profile; all of them: what a context leaves out is empty, not somebody else's."""

    bootstrap: str
    url: str = ""
    """Empty: learned from the broker."""
    user: str = ""
    password_file: str = ""
    token_file: str = ""
    tls_ca: str = ""
    kept_by: str = ""
    """The data directory of the server that keeps this up to date (`local`); empty when a person made it."""

    def values(self) -> dict[str, str]:
        """As a layer of a Profile."""
        fields = msgspec.structs.asdict(self)
        del fields["kept_by"]
        return fields


class Contexts:
    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or Path(platformdirs.user_config_dir("headrace")) / "contexts"
        self._in_use = self.directory / "in-use"

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.directory.glob("*.toml") if NAME.fullmatch(path.stem))

    def find(self, name: str) -> Context | None:
        path = self.directory / f"{name}.toml"
        if not NAME.fullmatch(name) or not path.is_file():
            return None
        if path.stat().st_mode & 0o077:
            # A29: whoever can write it can send somebody's password elsewhere.
            raise Failure(Exit.DENIED, f"{path} can be read or changed by others", f"chmod 600 {path}")
        try:
            return msgspec.convert(tomllib.loads(path.read_text()), Context)
        except (OSError, ValueError, msgspec.ValidationError) as problem:
            raise Failure(
                Exit.USAGE, f"context {name} can't be read: {problem}", f"mend {path}, or delete it"
            ) from None

    def need(self, name: str) -> Context:
        found = self.find(name)
        if found is None:
            meant = did_you_mean(name, self.names())
            raise Failure(
                Exit.NOT_FOUND,
                f'there is no context called "{name}"',
                f"{meant}  headrace context list".strip(),
                code="UNKNOWN_CONTEXT",
            )
        return found

    def keep(self, name: str, context: Context) -> None:
        if not NAME.fullmatch(name):
            raise Failure(
                Exit.USAGE,
                f'"{name}" can\'t be the name of a context',
                "letters, digits, dots, - and _; at most 64 of them",
            )
        fields = {key: value for key, value in msgspec.structs.asdict(context).items() if value}
        # A string of JSON is one of TOML.
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in fields.items())
        self._write(self.directory / f"{name}.toml", text)

    def keep_secret(self, name: str, kind: str, secret: str) -> Path:
        """`kind`: password or token."""
        path = self.directory / f"{name}.{kind}"
        self._write(path, secret + "\n")
        return path

    def forget_secret(self, name: str, kind: str) -> None:
        (self.directory / f"{name}.{kind}").unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        (self.directory / f"{name}.toml").unlink(missing_ok=True)
        for kind in ("password", "token"):
            self.forget_secret(name, kind)
        current, previous = self._used()
        if name in (current, previous):
            self._note_use("" if current == name else current, "" if previous == name else previous)

    # -- which one -------------------------------------------------------------------------------------------------

    @property
    def in_use(self) -> str:
        """Empty: none. A name whose file somebody deleted is none."""
        current = self._used()[0]
        return current if current and self.find(current) is not None else ""

    @property
    def previous(self) -> str:
        return self._used()[1]

    def use(self, name: str) -> None:
        current, previous = self._used()
        if name != current:
            self._note_use(name, current or previous)

    def _used(self) -> tuple[str, str]:
        try:
            current, _, previous = self._in_use.read_text().strip("\n").partition("\n")
        except OSError:
            return "", ""
        return current, previous

    def _note_use(self, current: str, previous: str) -> None:
        self._write(self._in_use, f"{current}\n{previous}\n")

    def _write(self, path: Path, text: str) -> None:
        """Whole or not at all, and nobody else's to read."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        draft.replace(path)
