"""Adapter: definitions from files: everything relative in them becomes absolute."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from headrace.spark.pipelines.definition import DefinitionError, Kinds, checked, parse


def load(
    path: Path, *, overrides: Mapping[str, Any] | None = None, here: Mapping[str, Any] | None = None
) -> Kinds:
    """From TOML, or from JSON as a supervisor hands it to its runs: that has no relative path any more."""
    try:
        text = path.read_text()
    except OSError as problem:
        raise DefinitionError(f"{path}: {problem.strerror}") from None
    if path.suffix == ".json":
        return checked(json.loads(text))
    return settled(parse(text, overrides=overrides, here=here), path.resolve().parent)


def settled(found: Kinds, directory: Path) -> Kinds:
    """What a definition calls relative is relative to the definition, wherever the shell is; and so is its state."""
    found = _beside(found, directory)
    return found if found.state else msgspec.structs.replace(found, state=str(directory / f".{found.name}"))


def _beside(found: Kinds, directory: Path) -> Kinds:
    def absolute(text: str) -> str:
        return str(directory / Path(text).expanduser())

    changes: dict[str, Any] = {}
    for key in ("path", "warehouse", "report", "state", "json_schema", "avro_schema"):
        text = getattr(found, key, "")
        if text and "://" not in text and not text.lstrip().startswith("{"):
            changes[key] = absolute(text)
    for key in ("login", "target_login", "other_login"):
        login = getattr(found, key, None)
        if login is not None:
            files = {name: getattr(login, name) for name in ("password_file", "token_file", "tls_ca")}
            changes[key] = msgspec.structs.replace(
                login, **{name: absolute(text) for name, text in files.items() if text}
            )
    return msgspec.structs.replace(found, **changes)
