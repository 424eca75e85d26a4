"""Codec: the words of the filter language."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_EXPRESSION_CHARS = 8_192


class FilterProblem(ValueError):
    """What is wrong with an expression, and where: `position` counts characters from 0."""

    def __init__(self, detail: str, position: int, expression: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.position = position
        self.expression = expression

    def pointed(self) -> str:
        """Two lines: the expression and a caret under the place."""
        return f"{self.expression}\n{' ' * self.position}^ {self.detail}" if self.expression else self.detail


class Token(NamedTuple):
    kind: str
    """number, string, name, keyword, symbol or end."""
    text: str
    position: int


KEYWORDS = {"and", "or", "not", "in", "is", "null", "true", "false"}

_WORD = re.compile(
    r"""
      (?P<space>\s++)
    | (?P<number>-?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
    | (?P<string>"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')
    | (?P<name>[A-Za-z_][A-Za-z0-9_-]*+)
    | (?P<symbol>==|!=|<>|<=|>=|=|<|>|\(|\)|\[|\]|,|\.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def tokenize(expression: str) -> list[Token]:
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise FilterProblem(
            f"a filter has at most {MAX_EXPRESSION_CHARS} characters", MAX_EXPRESSION_CHARS, ""
        )
    tokens: list[Token] = []
    position = 0
    while position < len(expression):
        match = _WORD.match(expression, position)
        if match is None:
            what = (
                "the string has no end"
                if expression[position] in "\"'"
                else f"{expression[position]!r} means nothing here"
            )
            raise FilterProblem(what, position, expression)
        kind, text = match.lastgroup or "", match.group()
        if kind == "name" and text.lower() in KEYWORDS:
            tokens.append(Token("keyword", text.lower(), position))
        elif kind != "space":
            tokens.append(Token(kind, text, position))
        position = match.end()
    tokens.append(Token("end", "", position))
    return tokens


def string_value(text: str) -> str:
    """What a quoted string means."""
    return re.sub(
        r"\\(.)", lambda match: _ESCAPES.get(match.group(1), match.group(1)), text[1:-1], flags=re.DOTALL
    )
