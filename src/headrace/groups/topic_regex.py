"""Codec: regular expressions over names, in time linear in the name, whatever the expression (KIP-848, KIP-1152).

Clients choose these expressions and the coordinator evaluates them, on its one event loop, for every topic or transactional id. Python's
`re` backtracks, so a few characters (`(a+)+$`, or just `.*.*.*.*x`) could stop the broker; limits on its syntax
either let such patterns through or refuse honest ones. Kafka uses RE2, which never backtracks. So do we: the
expression becomes an automaton, its states are found lazily, one step per character. What RE2 can do and a
name can notice is here: alternation, groups, classes, repetition,
anchors, (?i). Backreferences and lookaround are not regular, and refused as in RE2. Expressions are in ASCII, as topic names
are; of other characters, which a transactional id may have, it is known only that they are none of those.
"""

from __future__ import annotations

import string
from collections.abc import Collection
from typing import NamedTuple

from headrace.core.units import is_digits

MAX_PATTERN_CHARS = 1_000
MAX_DEPTH = 50
MAX_NODES = 1_000
MAX_REPEAT = 1_000
MAX_CACHED_STEPS = 20_000
WORK = 20_000
WORK_PER_NAME = 100
"""How many automaton nodes may be visited to select among names. Steps seen before are free, so an honest expression
needs a few for each name; one built to need its hundreds of nodes for every character is refused."""

_ALPHABET = "".join(map(chr, range(128)))
_BIT = {char: 1 << index for index, char in enumerate(_ALPHABET)}
_OTHER = 1 << len(_ALPHABET)
_ALL = (_OTHER << 1) - 1


def _mask(chars: str) -> int:
    return sum(_BIT[char] for char in set(chars) if char in _BIT)


_CLASSES = {
    "d": _mask(string.digits),
    "w": _mask(string.ascii_letters + string.digits + "_"),
    "s": _mask("\t\n\f\r "),
}
_CLASSES.update({name.upper(): _ALL & ~mask for name, mask in _CLASSES.items()})
_POSIX = {
    "alpha": _mask(string.ascii_letters),
    "digit": _mask(string.digits),
    "alnum": _mask(string.ascii_letters + string.digits),
    "lower": _mask(string.ascii_lowercase),
    "upper": _mask(string.ascii_uppercase),
    "punct": _mask(string.punctuation),
    "word": _CLASSES["w"],
    "xdigit": _mask(string.hexdigits),
    "space": _mask(string.whitespace),
}


class InvalidPattern(ValueError):
    """Not an expression that we evaluate; the text says why."""


class _Set(NamedTuple):
    """One character out of a set; no bit set never matches."""

    mask: int


class _Anchor(NamedTuple):
    at_end: bool


class _Sequence(NamedTuple):
    items: tuple[_Node, ...]


class _Choice(NamedTuple):
    options: tuple[_Node, ...]


class _Repeat(NamedTuple):
    item: _Node
    least: int
    most: int | None


_Node = _Set | _Anchor | _Sequence | _Choice | _Repeat


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.at = 0
        self.ignore_case = False

    def parse(self) -> _Node:
        node = self.choice(0)
        if self.at < len(self.text):
            raise InvalidPattern("unmatched )")
        return node

    def peek(self, ahead: int = 1) -> str:
        return self.text[self.at : self.at + ahead]

    def take(self) -> str:
        if self.at >= len(self.text):
            raise InvalidPattern("the expression ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def choice(self, depth: int) -> _Node:
        if depth > MAX_DEPTH:
            raise InvalidPattern(f"groups are nested more than {MAX_DEPTH} deep")
        options = [self.sequence(depth)]
        while self.peek() == "|":
            self.at += 1
            options.append(self.sequence(depth))
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def sequence(self, depth: int) -> _Node:
        items: list[_Node] = []
        while self.at < len(self.text) and self.peek() not in ("|", ")"):
            if self.peek(2) == "\\Q":
                items.extend(self.quoted())
            else:
                items.append(self.repeated(self.atom(depth)))
        return _Sequence(tuple(items))

    def quoted(self) -> list[_Node]:
        end = self.text.find("\\E", self.at + 2)
        literal = self.text[self.at + 2 : end if end >= 0 else None]
        self.at = end + 2 if end >= 0 else len(self.text)
        items: list[_Node] = [self.literal(char) for char in literal]
        if items:
            items[-1] = self.repeated(items[-1])
        return items

    def repeated(self, item: _Node) -> _Node:
        bounds = self.quantifier()
        if bounds is None:
            return item
        if self.peek() == "?":
            self.at += 1  # greedy or not makes no difference to whether a whole name matches
        if self.quantifier() is not None:
            raise InvalidPattern("a repetition is repeated without a group")
        return _Repeat(item, *bounds)

    def quantifier(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if self.peek() in simple:
            return simple[self.take()]
        end = self.text.find("}", self.at)
        if self.peek() != "{" or end < 0:
            return None
        least, comma, most = self.text[self.at + 1 : end].partition(",")
        if not is_digits(least) or (most and not is_digits(most)):
            return None  # a brace that is no repetition stands for itself
        low = int(least[:6])
        high = low if not comma else int(most[:6]) if most else None
        if max(low, high or 0) > MAX_REPEAT or (high is not None and high < low):
            raise InvalidPattern(f"bad repetition {{{self.text[self.at + 1 : end]}}}")
        self.at = end + 1
        return low, high

    def atom(self, depth: int) -> _Node:
        char = self.take()
        if char == "(":
            return self.group(depth)
        if char == "[":
            return _Set(self.bracket())
        if char == ".":
            return _Set(_ALL & ~_BIT["\n"])
        if char in "^$":
            return _Anchor(char == "$")
        if char in "*+?":
            raise InvalidPattern(f"nothing to repeat before {char}")
        if char == "\\":
            return self.escape()
        return self.literal(char)

    def literal(self, char: str) -> _Set:
        mask = _mask(char + char.swapcase()) if self.ignore_case else _mask(char)
        return _Set(mask)

    def escape(self) -> _Node:
        char = self.take()
        if char in _CLASSES:
            return _Set(_CLASSES[char])
        if char in "Az":
            return _Anchor(char == "z")
        if char.isalnum():
            raise InvalidPattern(f"\\{char} is not supported")
        return self.literal(char)

    def group(self, depth: int) -> _Node:
        before = self.ignore_case
        if self.peek() == "?":
            self.at += 1
            if self.group_options():
                return _Sequence(())  # flags for the rest of the enclosing group
        node = self.choice(depth + 1)
        if self.peek() != ")":
            raise InvalidPattern("missing )")
        self.at += 1
        self.ignore_case = before
        return node

    def group_options(self) -> bool:
        """After `(?`. True when it was flags only, up to and including the closing parenthesis."""
        if self.peek() in ("=", "!") or self.peek(2) in ("<=", "<!"):
            raise InvalidPattern("lookaround is not supported")
        if self.peek() == "<" or self.peek(2) == "P<":
            end = self.text.find(">", self.at)
            if end < 0:
                raise InvalidPattern("the name of a group does not end")
            self.at = end + 1
            return False
        switch_on = True
        while (char := self.take()) not in ":)":
            if char == "-":
                switch_on = False
            elif char == "i":
                self.ignore_case = switch_on
            elif char not in "msU":
                raise InvalidPattern(f"unknown group option {char}")
        return char == ")"

    def bracket(self) -> int:
        negated = self.peek() == "^"
        self.at += negated
        mask, first = 0, True
        while (char := self.take()) != "]" or first:
            first = False
            if char == "[" and self.peek() == ":":
                mask |= self.posix()
                continue
            if char == "\\":
                char = self.take()
                if char in _CLASSES:
                    mask |= _CLASSES[char]
                    continue
                if char.isalnum():
                    raise InvalidPattern(f"\\{char} is not supported")
            mask |= self.range_from(char)
        if self.ignore_case:
            chars = "".join(char for char in _ALPHABET if mask & _BIT[char])
            mask = _mask(chars + chars.swapcase())
        return _ALL & ~mask if negated else mask

    def range_from(self, low: str) -> int:
        if self.peek() != "-" or self.peek(2) in ("-", "-]"):
            return _mask(low)
        self.at += 1
        high = self.take()
        if high == "\\":
            high = self.take()
        if high < low:
            raise InvalidPattern(f"bad range {low}-{high}")
        return _mask("".join(char for char in _ALPHABET if low <= char <= high))

    def posix(self) -> int:
        end = self.text.find(":]", self.at)
        name = self.text[self.at + 1 : end]
        negated = name.startswith("^")
        if end < 0 or name.lstrip("^") not in _POSIX:
            raise InvalidPattern("unknown character class")
        self.at = end + 2
        mask = _POSIX[name.lstrip("^")]
        return _ALL & ~mask if negated else mask


_State = frozenset[int]


class NamePattern:
    """A compiled expression. Invariant: matching costs at most one automaton step per character of the name."""

    __slots__ = ("_accept", "_accepting", "_edges", "_first", "_free", "_steps", "_visited")

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise InvalidPattern(f"the expression is longer than {MAX_PATTERN_CHARS} characters")
        self._edges: list[tuple[int, int] | None] = []
        """For a node that reads a character: which ones, and where to then."""
        self._free: list[list[tuple[int, bool | None]]] = []
        """Moves that read nothing: where to, and at which end of the name only (None: anywhere)."""
        self._steps: dict[tuple[_State, str], _State] = {}
        self._accepting: dict[_State, bool] = {}
        self._visited = 0
        self._accept = self._node()
        start = self._build(_Parser(pattern).parse(), self._accept)
        self._first = self._closure({start}, at_start=True)

    def select(self, names: Collection[str]) -> frozenset[str]:
        limit = self._visited + WORK + WORK_PER_NAME * len(names)
        found = []
        for name in names:
            if self.matches(name):
                found.append(name)
            if self._visited > limit:
                raise InvalidPattern("the expression is too expensive to evaluate")
        return frozenset(found)

    def matches(self, name: str) -> bool:
        """The whole name, as in KIP-848."""
        state, steps = self._first, self._steps
        for char in name:
            known = steps.get((state, char))
            state = self._step(state, char) if known is None else known
            if not state:
                return False
        accepting = self._accepting.get(state)
        if accepting is None:
            accepting = self._accept in self._closure(state, at_end=True)
            self._accepting[state] = accepting
        return accepting

    def _step(self, state: _State, char: str) -> _State:
        bit = _BIT.get(char, _OTHER)
        self._visited += len(state)
        edges = (self._edges[node] for node in state)
        reached = self._closure({edge[1] for edge in edges if edge is not None and edge[0] & bit})
        if len(self._steps) >= MAX_CACHED_STEPS:
            self._steps.clear()
            self._accepting.clear()
        self._steps[state, char] = reached
        return reached

    def _closure(self, nodes: set[int] | _State, *, at_end: bool = False, at_start: bool = False) -> _State:
        reached = set(nodes)
        stack = list(nodes)
        while stack:
            for target, end_only in self._free[stack.pop()]:
                allowed = end_only is None or (at_end if end_only else at_start)
                if allowed and target not in reached:
                    reached.add(target)
                    stack.append(target)
        self._visited += len(reached)
        return frozenset(reached)

    # --- construction, from the end to the start -------------------------------------------------------------

    def _node(self) -> int:
        if len(self._edges) >= MAX_NODES:
            raise InvalidPattern("the expression is too large")
        self._edges.append(None)
        self._free.append([])
        return len(self._edges) - 1

    def _build(self, node: _Node, then: int) -> int:
        """The automaton for `node` followed by what starts at `then`. Returns where it starts."""
        if isinstance(node, _Sequence):
            for item in reversed(node.items):
                then = self._build(item, then)
            return then
        if isinstance(node, _Repeat):
            return self._build_repeat(node, then)
        start = self._node()
        if isinstance(node, _Set):
            self._edges[start] = (node.mask, then)
        elif isinstance(node, _Anchor):
            self._free[start].append((then, node.at_end))
        else:
            self._free[start] += [(self._build(option, then), None) for option in node.options]
        return start

    def _build_repeat(self, node: _Repeat, then: int) -> int:
        if node.most is None:
            loop = self._node()
            self._free[loop] += [(self._build(node.item, loop), None), (then, None)]
            then = loop
        else:
            end = then
            for _ in range(node.most - node.least):
                fork = self._node()
                self._free[fork] += [(self._build(node.item, then), None), (end, None)]
                then = fork
        for _ in range(node.least):
            then = self._build(node.item, then)
        return then
