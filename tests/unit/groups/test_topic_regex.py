"""Topic patterns: the same answers as Python's re, in time that no pattern can stretch."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.topic_regex import InvalidPattern, NamePattern
from headrace.groups.topics import TopicIndex, TopicInfo

NAMES = st.text("ab1._-AB", min_size=1, max_size=8)
"""Never empty, as topics: there `$^` would match, which is of no use to anybody."""


def atoms(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = children.map(lambda inner: f"(?:{inner})")
    quantifier = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{1,}", "*?", "+?", "??"])
    return st.one_of(
        st.lists(children, min_size=1, max_size=3).map("".join),
        st.lists(children, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(group, quantifier).map("".join),
        children.map(lambda inner: f"({inner})"),
    )


PATTERNS = st.recursive(
    st.sampled_from(
        [
            "a",
            "b",
            "1",
            r"\.",
            "_",
            "-",
            ".",
            "[ab]",
            "[^a]",
            "[a-b1]",
            r"\d",
            r"\w",
            r"\W",
            "^",
            "$",
            r"[\d.]",
            "[a-]",
        ]
    ),
    atoms,
    max_leaves=8,
)


@given(PATTERNS, st.lists(NAMES, min_size=1, max_size=5))
def test_like_re(pattern: str, names: list[str]) -> None:
    expected, ours = re.compile(pattern, re.ASCII), NamePattern(pattern)
    for name in names:
        assert ours.matches(name) == bool(expected.fullmatch(name)), (pattern, name)


@given(st.text("ab(){}[]*+?|\\^$.-0123,:=!<>iPQE", max_size=15), NAMES)
def test_any_text_is_a_pattern_or_refused(pattern: str, name: str) -> None:
    try:
        NamePattern(pattern).matches(name)
    except InvalidPattern:
        pass


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("(?i)orders-[a-z]+", "ORDERS-Eu", True),
        ("(?i:A)b", "ab", True),
        ("(?i:A)b", "aB", False),
        ("(?i)a(?-i:b)c", "AbC", True),
        ("(?i)a(?-i:b)c", "ABC", False),
        (r"\Qa.b\E+", "a.bb", True),
        (r"\Qa.b\E", "a.b", True),
        (r"\Qa.b\E", "axb", False),
        ("(?P<name>a)(?<other>b)", "ab", True),
        ("[[:alpha:]]+[[:^alpha:]]", "ab1", True),
        ("a{,3}", "a{,3}", True),  # a brace that is no repetition
        ("", "", True),
        ("a||b", "", True),
        (r"\Aab\z", "ab", True),
        ("[]a]", "a", True),
    ],
)
def test_syntax_that_re_spells_otherwise(pattern: str, name: str, expected: bool) -> None:
    assert NamePattern(pattern).matches(name) is expected


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a**", "*a", "[a", "[b-a]", "a{3,2}", "a{1001}", r"\1", r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", r"\pL",
     "(?z)", "a\\", "[[:nope:]]", "(?P<x", "x" * 1_001, "((((a{30}){30}){30}){30})", "(" * 60 + ")" * 60],
)  # fmt: skip
def test_refusals(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        NamePattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", ".*.*.*.*.*.*x", "(a*)*(a*)*b", "(.?){200}x"])
def test_patterns_that_stop_a_backtracker_do_not_stop_us(pattern: str) -> None:
    automaton = NamePattern(pattern)
    assert not automaton.matches("a" * 248 + "c")
    assert automaton._visited < 400_000


def test_a_pattern_that_is_costly_for_every_name_is_refused() -> None:
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    names = ["".join(alphabet[(i * 7 + j * j * (i % 11 + 1)) % 26] for j in range(40)) for i in range(2_000)]
    index = TopicIndex({name: TopicInfo(name.encode()[:16], 1) for name in names})
    costly = "(.?.?.?.?.?.?.?.?.?[a-m]){20}"
    with pytest.raises(InvalidPattern):
        index.matching(costly)
    assert index.resolve(("absent",), costly) == frozenset()


def test_a_view_of_topics_answers_from_memory() -> None:
    index = TopicIndex({"a": TopicInfo(b"1" * 16, 1), "b": TopicInfo(b"2" * 16, 1)})
    assert index.matching("[ab]") is index.matching("[ab]")
    assert index.resolve(("b", "absent"), "a") == {"a", "b"}
