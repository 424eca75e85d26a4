"""Codec: from a tree to a function of one record.

A missing field is null. Comparing null, or values of two kinds, is false, whatever the operator but `!=`; numbers compare
with numbers, texts with texts, and `timestamp` also with an RFC 3339 time. The value is parsed as JSON only when a
path looks into it, once per record; one that is not JSON has no fields. A value of more than MAX_SEEN_BYTES is not
looked into: it is null, so that no record can make a filter expensive (X12).
"""

from __future__ import annotations

import operator as operators
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from headrace.core.limits import MIB
from headrace.records.filters.prefilter import Prefilter, prefilter_of
from headrace.records.filters.syntax import (
    And,
    Comparison,
    FunctionCall,
    IsNull,
    Literal,
    Node,
    Not,
    Or,
    Path,
    Scalar,
    Within,
    parse,
)
from headrace.records.filters.times import rfc3339_ms
from headrace.records.filters.tokens import FilterProblem

TAG_HEADER = "tag"

MAX_SEEN_BYTES = 4 * MIB
"""What a filter looks into at most."""

MAX_CONDITIONS = 1_000
"""Comparisons and calls in one filter: with the line above, what one record can cost."""

_MISSING = object()
_decode = msgspec.json.Decoder().decode


class FilterInput:
    """One record as a filter sees it. Cheap to make; JSON is parsed on first use."""

    __slots__ = ("_body", "headers", "key", "offset", "partition", "timestamp", "topic", "value")

    def __init__(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        timestamp: int = -1,
        offset: int = -1,
        topic: str = "",
        partition: int = -1,
    ) -> None:
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp = timestamp
        self.offset = offset
        self.topic = topic
        self.partition = partition
        self._body: Any = _MISSING

    def header(self, name: str) -> str | None:
        """The last one of that name, as text; bytes that are no text are as good as missing."""
        for known, value in reversed(self.headers):
            if known == name:
                return _text(value)
        return None

    @property
    def body(self) -> Any:
        if self._body is _MISSING:
            value = self.value
            try:
                self._body = None if value is None or len(value) > MAX_SEEN_BYTES else _decode(value)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                self._body = None
        return self._body


Evaluate = Callable[[FilterInput], Any]


class Needs(NamedTuple):
    """What a filter looks at, so that whoever runs it can skip what it does not need."""

    headers: bool
    value: bool
    tags: frozenset[str] | None
    """When set, only records with one of these tags can match."""


class Filter:
    __slots__ = ("_evaluate", "expression", "needs", "prefilter")

    def __init__(self, expression: str, node: Node) -> None:
        if _conditions(node) > MAX_CONDITIONS:
            raise FilterProblem(f"a filter has at most {MAX_CONDITIONS} conditions", 0, expression)
        self.expression = expression
        self._evaluate = _compile(node)
        self.prefilter: Prefilter | None = prefilter_of(node)
        """What the bytes of a record must hold for it to match; None when that can't be told."""
        roots = _roots(node)
        self.needs = Needs(
            bool(roots & {"header", "attribute", "tag"}), bool(roots & {"value", "size"}), _tags(node)
        )

    def matches(self, record: FilterInput) -> bool:
        return self._evaluate(record) is True

    def __repr__(self) -> str:
        return f"Filter({self.expression!r})"


def compile_expression(expression: str) -> Filter:
    """Raises FilterProblem, whose `pointed()` shows a person where."""
    return Filter(expression, parse(expression))


def _text(data: bytes | None) -> str | None:
    if data is None or len(data) > MAX_SEEN_BYTES:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


# -- operands ----------------------------------------------------------------------------------------------------------

_ROOTS: dict[str, Evaluate] = {
    "tag": lambda record: record.header(TAG_HEADER),
    "key": lambda record: _text(record.key),
    "value": lambda record: _text(record.value),
    "timestamp": lambda record: record.timestamp,
    "offset": lambda record: record.offset,
    "partition": lambda record: record.partition,
    "topic": lambda record: record.topic,
    "size": lambda record: len(record.value or b""),
}


def _path(path: Path) -> Evaluate:
    if path.root in ("header", "attribute"):
        name = str(path.steps[0])
        return lambda record: record.header(name)
    if not path.steps:
        return _ROOTS[path.root]
    steps = path.steps

    def walk(record: FilterInput) -> Any:
        found = record.body
        for step in steps:
            if isinstance(found, dict):
                found = found.get(step) if isinstance(step, str) else None
            elif isinstance(found, list) and isinstance(step, int) and step < len(found):
                found = found[step]
            else:
                return None
        return found

    return walk


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "text" if isinstance(value, str) else "other"


def _equal(left: Any, right: Any) -> bool:
    return _kind(left) == _kind(right) != "other" and bool(left == right)


def _ordered(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(left: Any, right: Any) -> bool:
        kind = _kind(left)
        return kind == _kind(right) and kind in ("number", "text") and test(left, right)

    return compare


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _ordered(lambda left, right: bool(left < right)),
    "<=": _ordered(lambda left, right: bool(left <= right)),
    ">": _ordered(lambda left, right: bool(left > right)),
    ">=": _ordered(lambda left, right: bool(left >= right)),
}


_PLAIN: dict[str, Callable[[Any, Any], bool]] = {
    "==": operators.eq,
    "!=": operators.ne,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}
_PLAIN_TYPES: dict[type, tuple[type, ...]] = {int: (int, float), float: (int, float), str: (str,)}
"""Types of one kind: what a value must be to be compared with a literal. `bool` is not among them, as in _kind."""


def _starts(text: Any, part: Any) -> bool:
    return isinstance(text, str) and isinstance(part, str) and text.startswith(part)


def _ends(text: Any, part: Any) -> bool:
    return isinstance(text, str) and isinstance(part, str) and text.endswith(part)


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, list):
        return any(_equal(entry, part) for entry in whole)
    return isinstance(whole, str) and isinstance(part, str) and part in whole


def _number(text: Any) -> float | None:
    """Attributes travel as text; a policy compares them as numbers."""
    if not isinstance(text, str):
        return text if _kind(text) == "number" else None
    try:
        return float(text)
    except ValueError:
        return None


_CALLS: dict[str, Callable[..., Any]] = {
    # Only policies use these two.
    "among": lambda whole, part: isinstance(whole, list) and any(_equal(entry, part) for entry in whole),
    "number": _number,
    "exists": lambda value: value is not None,
    "startswith": _starts,
    "endswith": _ends,
    "contains": _contains,
    "lower": lambda text: text.lower() if isinstance(text, str) else None,
    "upper": lambda text: text.upper() if isinstance(text, str) else None,
    "length": lambda value: len(value) if isinstance(value, (str, list)) else None,
}


# -- the tree ----------------------------------------------------------------------------------------------------------


def _compile(node: Node) -> Evaluate:
    match node:
        case Literal(value):
            return lambda record: value
        case Path():
            return _path(node)
        case FunctionCall(function, arguments):
            return _call(function, [_compile(argument) for argument in arguments])
        case Comparison(operator, left, right):
            return _comparison(operator, *_with_times(left, right))
        case Within(operand, options):
            return _within(_compile(operand), options)
        case IsNull(operand):
            inner = _compile(operand)
            return lambda record: inner(record) is None
        case Not(operand):
            inner = _compile(operand)
            return lambda record: inner(record) is not True
        case And(parts):
            every = [_compile(part) for part in parts]
            if len(every) == 2:
                one, other = every
                return lambda record: one(record) is True and other(record) is True
            return lambda record: all(part(record) is True for part in every)
        case Or(parts):
            some = [_compile(part) for part in parts]
            return lambda record: any(part(record) is True for part in some)


def _call(function: str, arguments: list[Evaluate]) -> Evaluate:
    action = _CALLS[function]
    if len(arguments) == 1:
        only = arguments[0]
        return lambda record: action(only(record))
    first, second = arguments
    return lambda record: action(first(record), second(record))


def _comparison(operator: str, left: Node, right: Node) -> Evaluate:
    if isinstance(right, Literal) and type(right.value) in _PLAIN_TYPES:
        return _with_literal(operator, _compile(left), right.value)
    test, one, other = _OPERATORS[operator], _compile(left), _compile(right)
    return lambda record: test(one(record), other(record))


def _with_literal(operator: str, operand: Evaluate, literal: Any) -> Evaluate:
    """What nearly every condition is, without asking for the literal's kind each time."""
    test, types = _PLAIN[operator], _PLAIN_TYPES[type(literal)]
    if operator == "!=":
        return lambda record: type(value := operand(record)) not in types or value != literal
    return lambda record: type(value := operand(record)) in types and test(value, literal)


def _with_times(left: Node, right: Node) -> tuple[Node, Node]:
    """`timestamp > "2026-11-01T00:00:00Z"` compares milliseconds."""
    if left == Path("timestamp", ()) and isinstance(right, Literal) and isinstance(right.value, str):
        return left, Literal(_time(right.value))
    if right == Path("timestamp", ()) and isinstance(left, Literal) and isinstance(left.value, str):
        return Literal(_time(left.value)), right
    return left, right


def _time(text: str) -> int:
    found = rfc3339_ms(text)
    if found is None:
        raise FilterProblem(f"{text!r} is not a time; write 2026-11-01T12:00:00Z or milliseconds", 0, text)
    return found


def _within(operand: Evaluate, options: tuple[Scalar, ...]) -> Evaluate:
    # bool is an int to Python: true must not be found in (1, 2).
    known = {(_kind(option), option) for option in options if option is not None}
    takes_null = None in options

    def test(record: FilterInput) -> bool:
        value = operand(record)
        if value is None:
            return takes_null
        kind = _kind(value)
        return kind != "other" and (kind, value) in known

    return test


# -- what it looks at ------------------------------------------------------------------------------------------------


def _conditions(node: Node) -> int:
    match node:
        case FunctionCall(_, arguments):
            return 1 + sum(_conditions(argument) for argument in arguments)
        case Comparison(_, left, right):
            return 1 + _conditions(left) + _conditions(right)
        case Within(operand, _) | IsNull(operand) | Not(operand):
            return 1 + _conditions(operand)
        case And(parts) | Or(parts):
            return sum(_conditions(part) for part in parts)
        case _:
            return 0


def _roots(node: Node) -> set[str]:
    match node:
        case Path(root):
            return {root}
        case FunctionCall(_, arguments):
            return set().union(*(_roots(argument) for argument in arguments))
        case Comparison(_, left, right):
            return _roots(left) | _roots(right)
        case Within(operand, _) | IsNull(operand) | Not(operand):
            return _roots(operand)
        case And(parts) | Or(parts):
            return set().union(*(_roots(part) for part in parts))
        case _:
            return set()


def _tags(node: Node) -> frozenset[str] | None:
    """The only tags that can match, when the expression says so; None when it does not."""
    tag = Path("tag", ())
    match node:
        case Comparison("==", left, right) if left == tag and isinstance(right, Literal):
            return frozenset({right.value} if isinstance(right.value, str) else ())
        case Within(operand, options) if operand == tag and None not in options:
            return frozenset(option for option in options if isinstance(option, str))
        case And(parts):
            known = [tags for part in parts if (tags := _tags(part)) is not None]
            return frozenset.intersection(*known) if known else None
        case Or(parts):
            every = [_tags(part) for part in parts]
            return frozenset().union(*every) if all(tags is not None for tags in every) else None  # type: ignore[arg-type]
        case _:
            return None
