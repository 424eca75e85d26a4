"""Codec: from an expression to its tree. Recursive descent with a bound on depth (X10).

expression  = conjunction ("or" conjunction)*
conjunction = negation ("and" negation)*
negation    = "not" negation | "(" expression ")" | comparison
comparison  = operand [operator operand | ["not"] "in" "(" literal, … ")" | "is" ["not"] "null"]
operand     = literal | path | function "(" operand, … ")"
path        = name ("." name | "[" (string | number) "]")*
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.core.units import is_digits
from headrace.records.filters.tokens import FilterProblem, Token, string_value, tokenize

MAX_DEPTH = 64
MAX_LIST = 1_000
MAX_NUMBER_CHARS = 64
"""Longer ones mean nothing to anybody, and Python refuses to read very long ones."""

Scalar = str | float | int | bool | None

FUNCTIONS = {"exists": 1, "startswith": 2, "endswith": 2, "contains": 2, "lower": 1, "upper": 1, "length": 1}
ROOTS = (
    "tag",
    "key",
    "value",
    "header",
    "headers",
    "attribute",
    "attributes",
    "timestamp",
    "offset",
    "partition",
    "topic",
    "size",
)


class Literal(NamedTuple):
    value: Scalar


class Path(NamedTuple):
    root: str
    steps: tuple[str | int, ...]


class FunctionCall(NamedTuple):
    function: str
    arguments: tuple[Node, ...]


class Comparison(NamedTuple):
    operator: str
    left: Node
    right: Node


class Within(NamedTuple):
    operand: Node
    options: tuple[Scalar, ...]


class IsNull(NamedTuple):
    operand: Node


class Not(NamedTuple):
    operand: Node


class And(NamedTuple):
    parts: tuple[Node, ...]


class Or(NamedTuple):
    parts: tuple[Node, ...]


Node = Literal | Path | FunctionCall | Comparison | Within | IsNull | Not | And | Or


def parse(expression: str) -> Node:
    return _Parser(expression).whole()


class _Parser:
    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = tokenize(expression)
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        if self._peek().kind == "end":
            raise self._problem("the filter is empty")
        node = self._disjunction()
        if self._peek().kind != "end":
            raise self._problem(f"{self._peek().text!r} was not expected; join conditions with and, or")
        return node

    # -- tokens ----------------------------------------------------------------------------------------------------

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += token.kind != "end"
        return token

    def _take(self, *texts: str) -> bool:
        token = self._peek()
        if token.kind in ("keyword", "symbol") and token.text in texts:
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            found = self._peek().text or "the end"
            raise self._problem(f"expected {text!r}, found {found!r}")

    def _problem(self, detail: str, token: Token | None = None) -> FilterProblem:
        return FilterProblem(detail, (token or self._peek()).position, self._expression)

    # -- grammar ---------------------------------------------------------------------------------------------------

    def _disjunction(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._problem(f"brackets are nested more than {MAX_DEPTH} deep")
        parts = [self._conjunction()]
        while self._take("or"):
            parts.append(self._conjunction())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _conjunction(self) -> Node:
        parts = [self._negation()]
        while self._take("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _negation(self) -> Node:
        negations = 0
        while self._take("not"):
            negations += 1
        if self._take("("):
            node = self._disjunction()
            self._expect(")")
        else:
            node = self._comparison()
        return Not(node) if negations % 2 else node

    def _comparison(self) -> Node:
        left = self._operand()
        token = self._peek()
        if token.kind == "symbol" and token.text in ("==", "=", "!=", "<>", "<", "<=", ">", ">="):
            self._next()
            operator = {"=": "==", "<>": "!="}.get(token.text, token.text)
            return Comparison(operator, left, self._operand())
        if self._take("in"):
            return Within(left, self._options())
        if token.text == "not" and token.kind == "keyword":
            self._next()
            self._expect("in")
            return Not(Within(left, self._options()))
        if self._take("is"):
            negated = self._take("not")
            self._expect("null")
            return Not(IsNull(left)) if negated else IsNull(left)
        return left

    def _options(self) -> tuple[Scalar, ...]:
        closing = ")" if self._take("(") else "]"
        if closing == "]":
            self._expect("[")
        options: list[Scalar] = []
        while not self._take(closing):
            if options:
                self._expect(",")
            token = self._peek()
            operand = self._operand()
            if not isinstance(operand, Literal):
                raise self._problem("a list holds strings, numbers, true, false or null", token)
            options.append(operand.value)
            if len(options) > MAX_LIST:
                raise self._problem(f"a list has at most {MAX_LIST} entries")
        return tuple(options)

    def _operand(self) -> Node:
        token = self._next()
        if token.kind == "number":
            if len(token.text) > MAX_NUMBER_CHARS:
                raise self._problem(f"a number has at most {MAX_NUMBER_CHARS} characters", token)
            return Literal(
                float(token.text) if any(mark in token.text for mark in ".eE") else int(token.text)
            )
        if token.kind == "string":
            return Literal(string_value(token.text))
        if token.kind == "keyword" and token.text in ("true", "false", "null"):
            return Literal({"true": True, "false": False, "null": None}[token.text])
        if token.kind != "name":
            raise self._problem(f"expected a value or a field, found {token.text or 'the end'!r}", token)
        if self._peek().text == "(" and self._peek().kind == "symbol":
            return self._call(token)
        return self._path(token)

    def _call(self, name: Token) -> Node:
        function = name.text.lower()
        if function not in FUNCTIONS:
            raise self._problem(f"there is no function {name.text!r}; there are {', '.join(FUNCTIONS)}", name)
        self._expect("(")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._problem(f"functions are nested more than {MAX_DEPTH} deep", name)
        arguments = [self._operand()]
        while self._take(","):
            arguments.append(self._operand())
        self._expect(")")
        self._depth -= 1
        if len(arguments) != FUNCTIONS[function]:
            raise self._problem(
                f"{function} takes {FUNCTIONS[function]} argument(s), not {len(arguments)}", name
            )
        return FunctionCall(function, tuple(arguments))

    def _path(self, first: Token) -> Node:
        if first.text not in ROOTS:
            raise self._problem(f"there is no field {first.text!r}; there are {', '.join(ROOTS)}", first)
        steps: list[str | int] = []
        while True:
            if self._take("."):
                token = self._next()
                if token.kind not in ("name", "keyword"):
                    raise self._problem("expected a name after the dot", token)
                steps.append(token.text)
            elif self._take("["):
                token = self._next()
                if token.kind == "string":
                    steps.append(string_value(token.text))
                elif token.kind == "number" and is_digits(token.text) and len(token.text) <= MAX_NUMBER_CHARS:
                    steps.append(int(token.text))
                else:
                    raise self._problem("expected a string or a position in the brackets", token)
                self._expect("]")
            else:
                break
            if len(steps) > MAX_DEPTH:
                raise self._problem(f"a path has at most {MAX_DEPTH} steps")
        self._check_steps(first, steps)
        return Path(
            first.text.rstrip("s") if first.text in ("headers", "attributes") else first.text, tuple(steps)
        )

    def _check_steps(self, first: Token, steps: list[str | int]) -> None:
        if first.text in ("header", "headers", "attribute", "attributes"):
            if len(steps) != 1 or not isinstance(steps[0], str):
                raise self._problem(f"name one: {first.text}.name", first)
        elif first.text != "value" and steps:
            raise self._problem(f"{first.text} has no fields", first)


__all__ = ["FilterProblem", "Node", "parse"]
