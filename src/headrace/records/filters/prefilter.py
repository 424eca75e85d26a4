"""Codec: what the raw bytes of a record must contain for it to match, so that most records need not be opened.

`tag == "eu"` can only be true of a record that holds the encoded header, and `value.region == "eu"` only of one that
holds `"eu"` in quotes, or a backslash with which JSON could write it otherwise. Searching bytes is fifty times cheaper
than opening records. Invariant: a record that matches contains one of the needles; the other direction is not promised.

Lengths in front of header names are taken to be written in as few bytes as they need, as every known client does.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.records.filters.syntax import (
    And,
    Comparison,
    FunctionCall,
    Literal,
    Node,
    Or,
    Path,
    Scalar,
    Within,
)
from headrace.records.varint import append_varint

MAX_NEEDLES = 16
"""Beyond it looking for each of them costs more than it saves."""

_ESCAPED = b"\\"
_TAG_HEADER = "tag"


class Prefilter(NamedTuple):
    """One of these byte strings is in every record that matches."""

    needles: tuple[bytes, ...]


def prefilter_of(node: Node) -> Prefilter | None:
    found = _needles(node)
    if not found or len(found) > MAX_NEEDLES:
        return None
    return Prefilter(tuple(sorted(found)))


def header_needle(name: str, value: bytes) -> bytes:
    """A header as it lies in a record."""
    encoded = bytearray()
    raw = name.encode("utf-8", "surrogateescape")
    append_varint(encoded, len(raw))
    encoded += raw
    append_varint(encoded, len(value))
    return bytes(encoded + value)


def _needles(node: Node) -> frozenset[bytes] | None:
    """Any of these is in a record for which `node` is true; None when there is no such promise."""
    match node:
        case Comparison("==", left, right):
            if isinstance(left, Literal):
                left, right = right, left
            return _any_of(left, (right.value,)) if isinstance(right, Literal) else None
        case Within(operand, options):
            return _any_of(operand, options)
        case FunctionCall("startswith" | "endswith" | "contains" as function, (operand, Literal(str(text)))):
            return _part(function, operand, text)
        case And(parts):
            promises = [found for part in parts if (found := _needles(part))]
            # The fewest and longest are the rarest, as a rule.
            return min(promises, key=lambda found: (len(found), -min(map(len, found))), default=None)
        case Or(parts):
            every = [_needles(part) for part in parts]
            return frozenset().union(*(found for found in every if found)) if all(every) else None
        case _:
            return None


def _any_of(operand: Node, options: tuple[Scalar, ...]) -> frozenset[bytes] | None:
    if not isinstance(operand, Path):
        return None
    found: set[bytes] = set()
    for option in options:
        needles = _equal(operand, option) if isinstance(option, str) else None
        if needles is None:
            return None
        found |= needles
    return frozenset(found)


def _equal(path: Path, text: str) -> set[bytes] | None:
    try:
        raw = text.encode()
        if path.root in ("tag", "header", "attribute"):
            return {header_needle(str(path.steps[0]) if path.steps else _TAG_HEADER, raw)}
    except UnicodeEncodeError:
        return None
    match path:
        case Path("key" | "value", ()):
            return {raw} if raw else None
        case Path("value", _):
            return {b'"' + raw + b'"', _ESCAPED} if _is_plain(text) else None
        case _:
            return None


def _part(function: str, operand: Node, text: str) -> frozenset[bytes] | None:
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        return None
    if not raw or not isinstance(operand, Path):
        return None
    if operand.root in ("tag", "header", "attribute", "key") or operand == Path("value", ()):
        return frozenset({raw})
    if operand.root != "value" or not _is_plain(text):
        return None
    before, after = {"startswith": (b'"', b""), "endswith": (b"", b'"'), "contains": (b"", b"")}[function]
    return frozenset({before + raw + after, _ESCAPED})


def _is_plain(text: str) -> bool:
    """Whether JSON can write it without a backslash; what it must escape can only be found by parsing."""
    return all(character >= " " and character not in '"\\' for character in text)
