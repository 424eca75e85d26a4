"""Machine: one JSON document into the fields of a schema, as Spark's from_json does it in its default mode.

The slow way, for documents that Arrow's parser does not take: a field of another type is null and the others stay, a number or
an object in a string field is its text, and what is no document at all has only nulls. Types whose rules are
richer than that (dates, decimals, maps, …) are refused when the query is planned; from_json itself is there for them.
"""

from __future__ import annotations

import json
import json.decoder
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_SINGLE = re.compile(r"'((?:[^'\\\x00-\x1f]|\\.)*)'", re.DOTALL)
_WORDS = {"true": True, "false": False, "null": None}
_ODD_NUMBERS = {
    "NaN": math.nan, "Infinity": math.inf, "+Infinity": math.inf, "INF": math.inf, "+INF": math.inf,
    "-Infinity": -math.inf, "-INF": -math.inf,
}  # fmt: skip
_ODD_NUMBER = re.compile(r"NaN|[+-]?Infinity|[+-]?INF")
_DEPTH = 500
_KINDS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_string, "string"), (pa.types.is_boolean, "boolean"), (pa.types.is_integer, "integer"),
    (pa.types.is_floating, "number"), (pa.types.is_struct, "object"), (pa.types.is_list, "array"),
)  # fmt: skip
_EXCERPT = 40
"""Characters of what is wrong that are shown."""

_scan_string: Callable[..., tuple[str, int]] = json.decoder.scanstring  # type: ignore[attr-defined]


class Malformed(ValueError):
    """Not JSON."""


class _Unfit(ValueError):
    """JSON of another type than the schema says."""


class Document:
    """A walk over one text. `found` is what the schema wants of it."""

    def __init__(self, text: str, *, strict: bool = False) -> None:
        """`strict`: a string field takes strings only."""
        self._text = text
        self._strict = strict
        self._at = 0
        self._depth = 0
        self._path: list[str] = []
        self.is_sound = True
        """Everything was of the type that the schema says."""
        self.problem = ""
        """The first thing that was not."""

    def read(self, fields: pa.Schema | pa.StructType) -> dict[str, Any] | None:
        """None: there is nothing in the text. What is no object has nulls."""
        empty = {field.name: None for field in fields}
        self._skip_space()
        if self._at == len(self._text):
            return None
        try:
            if self._peek() != "{":
                raise Malformed("no object is where one should be")
            return self._object(fields)
        except (Malformed, ValueError, IndexError) as problem:
            self._told(
                f"not JSON: {problem}"
                if str(problem) and self._at < len(self._text)
                else "not JSON: it ends too early"
            )
            return empty

    @property
    def is_at_end(self) -> bool:
        """Nothing is behind the document."""
        self._skip_space()
        return self._at == len(self._text)

    # -- values of a type ----------------------------------------------------------------------------------------

    def _object(self, fields: pa.Schema | pa.StructType) -> dict[str, Any]:
        kinds = {field.name: field.type for field in fields}
        found: dict[str, Any] = dict.fromkeys(kinds)
        self._enter()
        if self._next_is("}"):
            self._depth -= 1
            return found
        while True:
            self._skip_space()
            name = self._string()
            self._expect(":")
            self._skip_space()
            if name in kinds:
                self._field(found, name, kinds[name])
            else:
                self._skip()
            if self._next_is("}"):
                self._depth -= 1
                return found
            self._expect(",")

    def _field(self, found: dict[str, Any], name: str, kind: pa.DataType) -> None:
        start = self._at
        self._path.append(name)
        try:
            found[name] = self._value(kind)
        except _Unfit:
            self._at = start
            self._skip()
            shown = self._text[start : min(self._at, start + _EXCERPT)]
            self._told(f"{'.'.join(self._path)} is no {_word(kind)}: {shown}")
        self._path.pop()

    def _list(self, kind: pa.DataType) -> list[Any]:
        found: list[Any] = []
        self._enter()
        if self._next_is("]"):
            self._depth -= 1
            return found
        while True:
            self._skip_space()
            # An element that does not fit takes the whole list with it.
            found.append(self._value(kind))
            if self._next_is("]"):
                self._depth -= 1
                return found
            self._expect(",")

    def _value(self, kind: pa.DataType) -> Any:
        first = self._peek()
        if pa.types.is_string(kind):
            return self._text_of(first)
        if self._text.startswith("null", self._at):
            self._at += 4
            return None
        if pa.types.is_struct(kind):
            if first != "{":
                raise _Unfit
            return self._object(kind)
        if pa.types.is_list(kind):
            if first != "[":
                raise _Unfit
            return self._list(kind.value_type)
        return self._scalar(first, kind)

    def _text_of(self, first: str) -> str | None:
        if first in "\"'":
            return self._string()
        if self._text.startswith("null", self._at):
            self._at += 4
            return None
        if self._strict:
            raise _Unfit
        return self._written()

    def _written(self) -> str:
        """The value as Spark writes it again: without spaces, numbers as Java has them."""
        first = self._peek()
        if first in "\"'":
            return json.dumps(self._string(), ensure_ascii=False)
        if first not in "{[":
            start = self._at
            self._skip()
            return _java_text(self._text[start : self._at])
        closing = "}" if first == "{" else "]"
        parts: list[str] = []
        self._enter()
        if self._next_is(closing):
            self._depth -= 1
            return first + closing
        while True:
            self._skip_space()
            name = ""
            if first == "{":
                name = json.dumps(self._string(), ensure_ascii=False) + ":"
                self._expect(":")
                self._skip_space()
            parts.append(name + self._written())
            if self._next_is(closing):
                self._depth -= 1
                return first + ",".join(parts) + closing
            self._expect(",")

    def _scalar(self, first: str, kind: pa.DataType) -> Any:
        if pa.types.is_boolean(kind):
            for word in ("true", "false"):
                if self._text.startswith(word, self._at):
                    self._at += len(word)
                    return word == "true"
            raise _Unfit
        if first in "\"'":
            text = self._string()
            if pa.types.is_floating(kind) and text in _ODD_NUMBERS:
                return _ODD_NUMBERS[text]
            raise _Unfit
        found = _NUMBER.match(self._text, self._at)
        if found is None:
            odd = _ODD_NUMBER.match(self._text, self._at)
            if odd is None or not pa.types.is_floating(kind):
                raise _Unfit
            self._at = odd.end()
            return _ODD_NUMBERS[odd[0]]
        self._at = found.end()
        if pa.types.is_floating(kind):
            return float(found[0])
        if found[1] or found[2] or len(found[0]) > 20:
            raise _Unfit
        number, limit = int(found[0]), 1 << (kind.bit_width - 1)
        if not -limit <= number < limit:
            raise _Unfit
        return number

    def _told(self, problem: str) -> None:
        self.is_sound = False
        self.problem = self.problem or problem

    # -- tokens --------------------------------------------------------------------------------------------------

    def _skip(self) -> None:
        """Past a value of any type."""
        first = self._peek()
        if first in "\"'":
            self._string()
        elif first in "{[":
            self._skip_nested(first)
        else:
            for word in _WORDS:
                if self._text.startswith(word, self._at):
                    self._at += len(word)
                    return
            found = _NUMBER.match(self._text, self._at) or _ODD_NUMBER.match(self._text, self._at)
            if found is None:
                raise Malformed(f"something else at {self._at}")
            self._at = found.end()

    def _skip_nested(self, first: str) -> None:
        closing = "}" if first == "{" else "]"
        self._enter()
        if self._next_is(closing):
            self._depth -= 1
            return
        while True:
            self._skip_space()
            if first == "{":
                self._string()
                self._expect(":")
                self._skip_space()
            self._skip()
            if self._next_is(closing):
                self._depth -= 1
                return
            self._expect(",")

    def _enter(self) -> None:
        self._at += 1
        self._depth += 1
        if self._depth > _DEPTH:
            raise Malformed("too deep")

    def _string(self) -> str:
        if self._peek() == '"':
            text, self._at = _scan_string(self._text, self._at + 1, True)
            return text
        found = _SINGLE.match(self._text, self._at)
        if found is None:
            raise Malformed(f"no string at {self._at}")
        self._at = found.end()
        inner = re.sub(r'\\.|"', lambda one: {"\\'": "'", '"': '\\"'}.get(one[0], one[0]), found[1])
        return _scan_string(f'"{inner}"', 1, True)[0]

    def _peek(self) -> str:
        return self._text[self._at]

    def _skip_space(self) -> None:
        self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]

    def _next_is(self, char: str) -> bool:
        self._skip_space()
        if self._peek() == char:
            self._at += 1
            return True
        return False

    def _expect(self, char: str) -> None:
        if not self._next_is(char):
            raise Malformed(f'no "{char}" at {self._at}')


def _word(kind: pa.DataType) -> str:
    """As a JSON Schema has it."""
    for is_such, word in _KINDS:
        if is_such(kind):
            return word
    return str(kind)


def _java_text(token: str) -> str:
    """A number as Java's toString writes it."""
    if token in _WORDS:
        return token
    if token in _ODD_NUMBERS:
        return f'"{token}"'
    if token.lstrip("-").isdecimal():
        return str(int(token))
    number = float(token)
    if math.isinf(number):
        return f'"{"-" if number < 0 else ""}Infinity"'
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return format(Decimal(repr(number)), "f") if "e" in repr(number) else repr(number)
    digits, exponent = Decimal(repr(number)).as_tuple()[1:]
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) - 1 + int(exponent)
    return f"{'-' if number < 0 else ''}{text[0]}.{text[1:] or '0'}E{power}"
