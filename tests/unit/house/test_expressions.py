"""A7: no expression backtracks on text that came from outside, and only 0 to 9 are digits (F22).

An expression of the broker may repeat something without a bound only possessively (`*+`, `++`: what was matched is never given
back), or as the whole of itself. One that is searched for is tried at every place, so there it must be bounded or alone as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SOURCE = Path(__file__).parents[3] / "src" / "headrace"
NOT_THE_BROKER = {"cli", "client", "spark", "testing"}
"""They run as the user who typed the text."""
OUR_OWN_TEXT = {("http/openapi.py", r"\{(\w+)\*?\}")}
"""Route templates out of our own sources."""
BUILT = {"records/tag_mask.py", "security/certified.py"}
"""Put together from bounded pieces; of certificates, from possessive ones and one that takes anything."""
ANYWHERE = {"search", "sub", "subn", "findall", "finditer", "split"}
USES = ANYWHERE | {"compile", "match", "fullmatch"}


class Expression(NamedTuple):
    module: str
    line: int
    pattern: str | bytes
    flags: int
    searched: bool


def of_the_broker() -> Iterator[tuple[str, ast.Module, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE)
        if name.parts[0] not in NOT_THE_BROKER:
            text = path.read_text()
            yield name.as_posix(), ast.parse(text), text


def expressions() -> Iterator[Expression]:
    for name, tree, text in of_the_broker():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.func.attr in USES
            ):
                first = node.args[0]
                if name in BUILT and not isinstance(first, ast.Constant):
                    continue
                assert isinstance(first, ast.Constant), f"{name}:{node.lineno}: write the expression out"
                assert isinstance(first.value, str | bytes)
                flags = re.VERBOSE if "re.VERBOSE" in ast.unparse(node) else 0
                yield Expression(name, node.lineno, first.value, flags, is_searched(node, tree, text))


def is_searched(call: ast.Call, tree: ast.Module, text: str) -> bool:
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr != "compile":
        return call.func.attr in ANYWHERE
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and node.value is call and isinstance(node.targets[0], ast.Name):
            return re.search(rf"\b{node.targets[0].id}\.({'|'.join(ANYWHERE)})\(", text) is not None
    return False


def unbounded(parsed: Any) -> Iterator[str]:
    """The kinds of repetition without an upper bound, wherever they stand."""
    for op, value in parsed:
        name = str(op)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            if value[1] == re._constants.MAXREPEAT:
                yield name
            yield from unbounded(value[2])
        elif name == "SUBPATTERN":
            yield from unbounded(value[3])
        elif name == "BRANCH":
            for branch in value[1]:
                yield from unbounded(branch)
        elif name in ("ASSERT", "ASSERT_NOT"):
            yield from unbounded(value[1])
        elif name == "ATOMIC_GROUP":
            yield from unbounded(value)


def problem(pattern: str | bytes, flags: int, searched: bool) -> str | None:
    parsed = re._parser.parse(pattern, flags)
    kinds = list(unbounded(parsed))
    alone = len(parsed) == 1 and len(kinds) == 1
    if isinstance(pattern, str) and r"\d" in pattern:
        return "to \\d every script's digits are digits; write [0-9]"
    if alone:
        return None
    if searched and kinds:
        return "it is searched for, and repeats without a bound"
    if any(kind != "POSSESSIVE_REPEAT" for kind in kinds):
        return "it repeats without a bound and backtracks; write *+ or ++, or a bound"
    return None


def test_no_expression_backtracks_f22() -> None:
    found = list(expressions())
    assert len(found) > 20
    bad = [
        f"{each.module}:{each.line}: {each.pattern!r}: {why}"
        for each in found
        if (each.module, each.pattern) not in OUR_OWN_TEXT
        and (why := problem(each.pattern, each.flags, each.searched)) is not None
    ]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize(
    ("pattern", "searched", "good"),
    [
        (r"Credential=([^/]+)/", True, False),
        (r"Credential=([^/]++)/", True, False),
        (r"(a+)+b", False, False),
        (r"a*a*b", False, False),
        (r"\d{3}", False, False),
        (r" +", True, True),
        (r"[0-9]{1,9}x", True, True),
        (r"[a-z]++:[0-9]++", False, True),
    ],
)
def test_the_rule_itself_f22(pattern: str, searched: bool, good: bool) -> None:
    assert (problem(pattern, 0, searched) is None) == good


def test_only_0_to_9_are_digits_f22() -> None:
    """`"²".isdigit()` is true and `int("²")` raises: a 500 for whoever sends it."""
    bad = [
        f"{name}:{node.lineno}"
        for name, tree, _ in of_the_broker()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("isdigit", "isdecimal", "isnumeric")
    ]
    allowed = {
        "core/units.py",
        "broker/queueing/local/delayed.py",
    }  # the one place; and bytes, which have no other digits
    assert {place.partition(":")[0] for place in bad} <= allowed, bad
