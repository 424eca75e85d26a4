"""Driver: what people ask of a pipeline: submit it, stop it, start it again, take it away. Each is one compared change of its definition."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.pipelines import Submitted, defining_id, encode, ordered, version_key
from headrace.spark.pipelines.definition import DefinitionError, Kinds, Table
from headrace.spark.service.store import Rows, Store

MAX_TOML = 256 << 10
_SECRET = re.compile(
    r"secret|password|passwd|access[._-]?key|api[._-]?key|private[._-]?key|(^|[._-])(token|credential)s?$",
    re.I,
)
_LOGIN_IN_URL = re.compile(r"://[^/@:\s]+:[^/@\s]+@")
_FILES = {"password_file", "token_file"}


def stored(found: Kinds) -> dict[str, Any]:
    """The definition as it is kept: nothing in it depends on files of its author, and nothing in it is secret (A28)."""
    if isinstance(found, Table):
        found = found.with_schema_texts()
    table: dict[str, Any] = msgspec.to_builtins(found)
    secrets = sorted(set(_secrets(table, "")))
    if secrets:
        raise DefinitionError(
            f"{', '.join(secrets)}: a secret does not belong into a definition, which everybody sees who may read the topic; "
            "use [login] with password_file or token_file, and the environment of the supervisor for stores and catalogs"
        )
    return table


def _secrets(table: dict[str, Any], path: str) -> Iterator[str]:
    for key, value in table.items():
        where = f"{path}{key}"
        if isinstance(value, dict):
            yield from _secrets(value, f"{where}.")
        elif isinstance(value, str) and value and _is_secret(key, value):
            yield where


def _is_secret(key: str, value: str) -> bool:
    return key not in _FILES and bool(_SECRET.search(key) or _LOGIN_IN_URL.search(value))


def submit(store: Store, found: Kinds, toml: str, by: str, wall_ms: int) -> Submitted:
    """A first version, or the next one: a run of the one before is stopped and started with this."""
    if len(toml) > MAX_TOML:
        raise DefinitionError(f"the definition has {len(toml)} characters; {MAX_TOML} at most")
    table = stored(found)

    def next_version(known: Submitted | None) -> Submitted:
        return Submitted(
            name=found.name,
            kind=found.kind,
            life=known.life if known is not None else uuid.uuid4().hex,
            version=known.version + 1 if known is not None else 1,
            toml=toml,
            definition=table,
            by=by,
            at_ms=wall_ms,
            changed_by=by,
            changed_ms=wall_ms,
        )

    return _changed(store, found.name, next_version, keeps_version=True)


def rollback(store: Store, name: str, version: int, by: str, wall_ms: int) -> Submitted:
    """The next version is what an earlier one was."""

    def as_before(known: Submitted | None) -> Submitted:
        if known is None:
            raise _unknown(name)
        old = find_version(store, name, version)
        return msgspec.structs.replace(
            old, life=known.life, version=known.version + 1, wanted=True, order=0,
            by=by, at_ms=wall_ms, changed_by=by, changed_ms=wall_ms,
        )  # fmt: skip

    return _changed(store, name, as_before, keeps_version=True)


def find_version(store: Store, name: str, version: int) -> Submitted:
    kept = {one.version: one for one in store.versions(name)}
    if version not in kept:
        raise HeadraceError(
            ErrorKind.NOT_FOUND,
            f"{name} has no version {version}",
            f"kept are {', '.join(map(str, sorted(kept)))}",
        )
    return kept[version]


def order(
    store: Store, name: str, by: str, wall_ms: int, *, wanted: bool, restart: bool = False
) -> Submitted:
    def changed(known: Submitted | None) -> Submitted:
        if known is None:
            raise _unknown(name)
        return ordered(known, by, wall_ms, wanted=wanted, restart=restart)

    return _changed(store, name, changed)


def forget_state(store: Store, name: str, by: str, wall_ms: int) -> Submitted:
    """A new life: its next run need not find what the last one left in its state directory."""

    def changed(known: Submitted | None) -> Submitted:
        if known is None:
            raise _unknown(name)
        return msgspec.structs.replace(known, life=uuid.uuid4().hex, changed_by=by, changed_ms=wall_ms)

    return _changed(store, name, changed)


def remove(store: Store, name: str) -> None:
    """Definition, versions, runs and lease. What the pipeline has written stays, and so does its state directory."""

    def nothing() -> Rows:
        if store.definition(name) is None:
            raise _unknown(name)
        return [(key, None) for key in store.keys_of(name)]

    store.change(defining_id(name), nothing)


def _changed(
    store: Store, name: str, change: Callable[[Submitted | None], Submitted], *, keeps_version: bool = False
) -> Submitted:
    made: list[Submitted] = []

    def rows() -> Rows:
        fresh = change(store.definition(name))
        made.append(fresh)
        kept = [(version_key(name, fresh.version), encode(fresh))] if keeps_version else []
        return [(name, encode(fresh)), *kept]

    store.change(defining_id(name), rows)
    return made[-1]


def _unknown(name: str) -> HeadraceError:
    return HeadraceError(ErrorKind.NOT_FOUND, f'no pipeline "{name}" is submitted', "headrace pipeline list")
