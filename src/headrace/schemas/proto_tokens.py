"""Codec: a .proto file as words, numbers, texts and signs; comments are gone."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from headrace.core.units import is_digits
from headrace.schemas.model import BadSchema

_TOKEN = re.compile(
    r"""(?P<space>\s++|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*+)
    |(?P<number>0[xX][0-9a-fA-F]++|[0-9]++(?:\.[0-9]*+)?+(?:[eE][+-]?[0-9]++)?+|\.[0-9]++(?:[eE][+-]?[0-9]++)?+)
    |(?P<text>"(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+')
    |(?P<sign>[{}\[\]()<>;,=.+\-:/])""",
    re.VERBOSE | re.DOTALL,
)


class ProtoToken(NamedTuple):
    kind: str
    text: str
    line: int


class Tokens:
    def __init__(self, source: str) -> None:
        self._found: list[ProtoToken] = []
        position, line = 0, 1
        while position < len(source):
            match = _TOKEN.match(source, position)
            if match is None:
                raise BadSchema(f"line {line}: {source[position : position + 20]!r} has no place here")
            kind, text = match.lastgroup or "", match.group()
            if kind != "space":
                self._found.append(ProtoToken(kind, text, line))
            line += text.count("\n")
            position = match.end()
        self._next = 0
        self._end = ProtoToken("end", "the end of the file", line)

    @property
    def ahead(self) -> ProtoToken:
        return self._found[self._next] if self._next < len(self._found) else self._end

    def take(self) -> ProtoToken:
        token = self.ahead
        self._next += 1
        return token

    def took(self, *texts: str) -> bool:
        """Whether these came next, and are taken."""
        for distance, text in enumerate(texts):
            place = self._next + distance
            if place >= len(self._found) or self._found[place].text != text:
                return False
        self._next += len(texts)
        return True

    def expect(self, text: str) -> None:
        token = self.take()
        if token.text != text:
            raise BadSchema(f'line {token.line}: expected "{text}", not "{token.text}"')

    def word(self) -> str:
        token = self.take()
        if token.kind != "word":
            raise BadSchema(f'line {token.line}: expected a name, not "{token.text}"')
        return token.text

    def full_name(self) -> str:
        """`a.b.C`, or `.a.b.C`."""
        name = "." if self.took(".") else ""
        name += self.word()
        while self.took("."):
            name += "." + self.word()
        return name

    def whole(self) -> int:
        sign = -1 if self.took("-") else 1
        token = self.take()
        text = token.text
        try:
            is_octal = len(text) > 1 and text[0] == "0" and is_digits(text)
            return sign * (int(text, 8) if is_octal else int(text, 0))
        except ValueError:
            raise BadSchema(f'line {token.line}: expected a whole number, not "{text}"') from None

    def text(self) -> str:
        token = self.take()
        if token.kind != "text":
            raise BadSchema(f'line {token.line}: expected a text, not "{token.text}"')
        made = _unquoted(token)
        while self.ahead.kind == "text":
            made += _unquoted(self.take())
        return made

    def skip_value(self) -> str:
        """The value of an option: a constant, or a message in braces. Answers a constant as it stands."""
        if self.ahead.text in ("{", "["):
            self._skip_braces()
            return ""
        if self.ahead.kind == "text":
            return self.text()
        sign = self.take().text if self.ahead.text in "+-" else ""
        if self.ahead.kind == "word":
            return sign + self.full_name()
        return sign + self.take().text

    def _skip_braces(self) -> None:
        depth = 0
        while True:
            token = self.take()
            if token.kind == "end":
                raise BadSchema(f"line {token.line}: a brace is not closed")
            depth += token.text in ("{", "[", "<") and token.kind == "sign"
            depth -= token.text in ("}", "]", ">") and token.kind == "sign"
            if depth == 0:
                return


def _unquoted(token: ProtoToken) -> str:
    try:
        value = ast.literal_eval("u" + token.text)
    except (ValueError, SyntaxError):
        raise BadSchema(f"line {token.line}: {token.text} is not a text") from None
    return str(value)
