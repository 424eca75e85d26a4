"""Machine: fields of a message that people who look at it do not see (W19): `value.card`, `value.user.email`, `key`, `header.authorization`, `value`.

A value that is not JSON has no fields: where one of its fields is to be hidden, all of it is. So a mask that was set for messages of another
shape hides too much and never too little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.records.build import Record

HIDDEN = "***"
_HIDDEN = HIDDEN.encode()


def mask_problem(paths: Sequence[str]) -> str | None:
    for path in paths:
        head, _, rest = path.partition(".")
        if (
            head not in ("key", "value", "header")
            or (head == "header" and not rest)
            or (head == "key" and rest)
            or path.endswith(".")
        ):
            return f"{path!r} is not key, value, value.FIELD or header.NAME"
    return None


class Mask:
    def __init__(self, paths: Sequence[str]) -> None:
        self._key = "key" in paths
        self._value = "value" in paths
        self._fields = [path.split(".")[1:] for path in paths if path.startswith("value.")]
        self._headers = {path.partition(".")[2].lower() for path in paths if path.startswith("header.")}

    def apply(self, record: Record) -> Record:
        headers = record.headers
        if self._headers:
            headers = tuple(
                (name, _HIDDEN if name.lower() in self._headers else value) for name, value in headers
            )
        return record._replace(
            key=_HIDDEN if self._key and record.key is not None else record.key,
            value=None if record.value is None else self._masked(bytes(record.value)),
            headers=headers,
        )

    def _masked(self, value: bytes) -> bytes:
        if self._value:
            return _HIDDEN
        if not self._fields:
            return value
        try:
            document = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _HIDDEN
        changed = [_hide(document, path) for path in self._fields]
        return msgspec.json.encode(document) if any(changed) else value


def _hide(document: Any, path: Sequence[str]) -> bool:
    """In every element of lists on the way."""
    if isinstance(document, list):
        return sum(_hide(one, path) for one in document) > 0
    if not isinstance(document, dict) or path[0] not in document:
        return False
    if len(path) == 1:
        document[path[0]] = HIDDEN
        return True
    return _hide(document[path[0]], path[1:])
