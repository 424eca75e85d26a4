"""Codec: edits of a record, as in `value.currency = "EUR"`: parsed once, then applied to any record. Pure.

    value.order.currency = "EUR"      a field of a JSON value; everything else stays as it was written, to the byte
    value = "text"                    the whole value: a text as it is, anything else as JSON; null is no value
    key = "k1"
    headers["trace-id"] = "abc"       null takes the header away

The right side is JSON, so that a text and a number are told apart. Nothing is evaluated, and length and number are bounded (W23).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from headrace.records.build import Headers, Record

MAX_EDITS = 50
MAX_CHARS = 64 * 1024
"""Of all edits of one task: they are kept with it."""
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_json = json.JSONDecoder()
_KEPT_BY_US = ("headrace-dead-", "headrace-edited-", "headrace-moved")
_HINT = """as in value.currency = "EUR", key = "k1" or headers["trace"] = "abc"; the right side is JSON"""

Step = str | int


class EditProblem(Exception):
    """The edit itself is not understood."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class CannotEdit(Exception):
    """It does not fit this record, which stays as it is."""


class Edit(NamedTuple):
    root: str
    steps: tuple[Step, ...]
    given: bytes
    """JSON."""

    def apply(self, record: Record) -> Record:
        """Raises CannotEdit."""
        if self.root == "key":
            return record._replace(key=_whole(self.given))
        if self.root == "headers":
            return record._replace(headers=_with_header(record.headers, str(self.steps[0]), self.given))
        if not self.steps:
            return record._replace(value=_whole(self.given))
        if record.value is None:
            raise CannotEdit("it has no value")
        return record._replace(value=_set(record.value, self.steps, self.given))


class Edits:
    """Several, one after the other: all of them or none."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises EditProblem."""
        found = list(texts)
        if len(found) > MAX_EDITS or sum(map(len, found)) > MAX_CHARS:
            raise EditProblem(f"there are at most {MAX_EDITS} edits, and {MAX_CHARS} characters in all")
        self._edits = [parse_edit(text) for text in found]

    def __bool__(self) -> bool:
        return bool(self._edits)

    def apply(self, record: Record) -> Record:
        """Raises CannotEdit."""
        for edit in self._edits:
            record = edit.apply(record)
        return record


def parse_edit(text: str) -> Edit:
    name, at = _name(text, len(text) - len(text.lstrip()))
    if name not in ("value", "key", "header", "headers"):
        raise _not_understood(text)
    root = "headers" if name == "header" else name
    steps, at = _steps(text, at)
    rest = text[at:].lstrip()
    if not rest.startswith("=") or rest.startswith("=="):
        raise _not_understood(text)
    given = rest[1:].strip().encode()
    try:
        msgspec.json.decode(given)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise EditProblem(f"the right side of {text[:80]!r} is not JSON: {_HINT}") from None
    if root == "key" and steps:
        raise EditProblem('a key is set as a whole, as in key = "k1"')
    if root == "headers":
        if len(steps) != 1 or not isinstance(steps[0], str):
            raise EditProblem('a header is named, as in headers["trace"] = "abc"')
        if steps[0].startswith(_KEPT_BY_US):
            raise EditProblem(f"{steps[0]} is kept by the broker")
    return Edit(root, steps, given)


def _not_understood(text: str) -> EditProblem:
    return EditProblem(f"{text[:80]!r} is not an edit: {_HINT}")


def _name(text: str, at: int) -> tuple[str, int]:
    found = _NAME.match(text, at)
    if found is None:
        raise _not_understood(text)
    return found[0], found.end()


def _steps(text: str, at: int) -> tuple[tuple[Step, ...], int]:
    """`.name`, `["any name"]` and `[3]`, one after the other, and where they end."""
    steps: list[Step] = []
    while text[at : at + 1] in (".", "["):
        if text[at] == ".":
            name, at = _name(text, at + 1)
            steps.append(name)
            continue
        try:
            step, at = _json.raw_decode(text, at + 1)
        except (ValueError, RecursionError):
            raise _not_understood(text) from None
        is_place = type(step) is int and 0 <= step < 1_000_000
        if not (isinstance(step, str) or is_place) or text[at : at + 1] != "]":
            raise _not_understood(text)
        steps.append(step)
        at += 1
    return tuple(steps), at


def _whole(given: bytes) -> bytes | None:
    value = msgspec.json.decode(given)
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else given


def _with_header(headers: Headers, name: str, given: bytes) -> Headers:
    value = _whole(given)
    kept = tuple(header for header in headers if header[0] != name)
    return kept if value is None else (*kept, (name, value))


def _set(data: bytes, steps: tuple[Step, ...], given: bytes) -> bytes:
    """Level by level: what is beside the path is passed on as the bytes that it was (numbers beyond 2^53, 10.10)."""
    if not steps:
        return given
    step, rest = steps[0], steps[1:]
    try:
        if isinstance(step, int):
            rows = msgspec.json.decode(data, type=list[msgspec.Raw])
            if step >= len(rows):
                raise CannotEdit(f"there is no [{step}] in it")
            rows[step] = msgspec.Raw(_set(bytes(rows[step]), rest, given))
            return msgspec.json.encode(rows)
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise CannotEdit("its value is no JSON with such a field") from None
    if rest and step not in fields:
        raise CannotEdit(f"there is no {step!r} in it")
    fields[step] = msgspec.Raw(_set(bytes(fields[step]), rest, given) if rest else given)
    return msgspec.json.encode(fields)
