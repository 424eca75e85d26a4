"""D3: the filter language: tables of what matches, clear problems, bounds, and a Python model beside it."""

from __future__ import annotations

import json
import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.filters import FilterInput, FilterProblem, compile_filter, compile_policy
from headrace.records.filters.times import rfc3339_ms

ORDER = FilterInput(
    b"k1",
    json.dumps(
        {"amount": 150, "user": {"name": "Ann", "tags": ["a", "b"]}, "ok": True, "none": None}
    ).encode(),
    (("tag", b"eu"), ("trace", b"t-1"), ("bin", b"\xff\xfe")),
    timestamp=1_793_491_200_000,
    offset=42,
    topic="orders",
    partition=3,
)


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ('tag in ("eu", "us") and value.amount > 100', True),
        ('tag == "us"', False),
        ("value.amount >= 150 and value.amount <= 150", True),
        ("value.amount = 150", True),
        ("value.amount <> 150", False),
        ("value.amount < 100 or value.user.name == 'Ann'", True),
        ("not value.amount < 100", True),
        ("not (tag == 'eu')", False),
        ("value.user.tags[1] == 'b'", True),
        ("value.user.tags[9] == 'b'", False),
        ("contains(value.user.tags, 'a')", True),
        ("value['user']['name'] = 'Ann'", True),
        ("value.missing is null", True),
        ("value.none is null", True),
        ("value.amount is not null", True),
        ("exists(header.trace) and not exists(header.nope)", True),
        ('headers["trace"] == "t-1"', True),
        ("header.bin is null", True),
        ("startswith(key, 'k') and endswith(key, '1') and contains(key, 'k1')", True),
        ("lower(value.user.name) == 'ann' and upper(tag) == 'EU'", True),
        ("length(value.user.tags) == 2", True),
        ("value.ok == true", True),
        ("value.ok == 1", False),
        ("value.ok in (1, 2)", False),
        ("value.amount == '150'", False),
        ("value.amount > 'a'", False),
        ("value.missing != 1", True),
        ("value.missing > 1", False),
        ("offset == 42 and partition == 3 and topic == 'orders'", True),
        ('timestamp >= "2026-11-01T00:00:00Z"', True),
        ('timestamp < "2026-11-01"', False),
        ("tag not in ('us')", True),
        ("tag not in ('eu')", False),
        ("size > 10", True),
        ("value.ok", True),
        ("value.amount", False),
        ("not not not value.ok", False),
    ],
)
def test_what_matches(expression: str, matches: bool) -> None:
    assert compile_filter(expression).matches(ORDER) is matches


@pytest.mark.parametrize(
    ("expression", "position", "words"),
    [
        ("", 0, "empty"),
        ("tag == ", 7, "expected a value"),
        ("colour == 1", 0, "no field 'colour'"),
        ("tag == 'eu' tag == 'us'", 12, "join conditions"),
        ("tag ~ 1", 4, "means nothing"),
        ("tag == 'eu", 7, "no end"),
        ("(tag == 'eu'", 12, "expected ')'"),
        ("matches(tag, 'x')", 0, "no function"),
        ("lower(tag, 1) == 'a'", 0, "takes 1"),
        ("tag in (key)", 8, "a list holds"),
        ("header == 1", 0, "name one"),
        ("key.a == 1", 0, "has no fields"),
        ("timestamp > 'soon'", 0, "not a time"),
    ],
)
def test_problems_say_what_and_where(expression: str, position: int, words: str) -> None:
    with pytest.raises(FilterProblem) as problem:
        compile_filter(expression)
    assert words in problem.value.detail
    assert problem.value.position == position


@pytest.mark.parametrize(
    "hostile",
    ["(" * 5000 + "tag", "not " * 2000 + "tag == 'a'", "tag == 'a' or " * 500 + "tag == 'b'", "value" + ".a" * 1000,
     "x" * 100_000, "tag in (" + ",".join(["1"] * 3000) + ")", "\x00", "value[" * 100, "'" + "\\" * 999],
)  # fmt: skip
def test_a_hostile_expression_ends(hostile: str) -> None:
    try:
        compile_filter(hostile).matches(ORDER)
    except FilterProblem:
        pass


@given(st.text(alphabet=st.sampled_from(list("tagvlue.()[]'\" =<>!andornotin,123")), max_size=200))
def test_any_text_compiles_or_says_why(text: str) -> None:
    try:
        compiled = compile_filter(text)
    except FilterProblem as problem:
        assert 0 <= problem.position <= len(text)
        return
    assert compiled.matches(ORDER) in (True, False)


def test_a_body_that_is_not_json_has_no_fields() -> None:
    for body in (b"{", b"\xff", None, b"[" * 100_000):
        assert not compile_filter("value.a == 1").matches(FilterInput(None, body))


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("tag == 'eu'", {"eu"}),
        ("tag in ('eu', 'us') and value.a > 1", {"eu", "us"}),
        ("tag == 'eu' or tag == 'us'", {"eu", "us"}),
        ("tag == 'eu' or value.a > 1", None),
        ("not tag == 'eu'", None),
        ("tag in ('eu', null)", None),
        ("tag == 'a' and tag == 'b'", set()),
    ],
)
def test_which_tags_can_match(expression: str, tags: set[str] | None) -> None:
    assert compile_filter(expression).needs.tags == (None if tags is None else frozenset(tags))


OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
leaf = st.tuples(st.sampled_from("abc"), st.sampled_from(list(OPERATORS)), st.integers(-3, 3))
tree = st.recursive(
    leaf,
    lambda inner: (
        st.tuples(st.just("not"), inner)
        | st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3))
    ),
    max_leaves=12,
)


def write(node: Any) -> str:
    if node[0] == "not":
        return f"not ({write(node[1])})"
    if node[0] in ("and", "or"):
        return "(" + f" {node[0]} ".join(write(part) for part in node[1]) + ")"
    return f"value.{node[0]} {node[1]} {node[2]}"


def model(node: Any, body: dict[str, int]) -> bool:
    if node[0] == "not":
        return not model(node[1], body)
    if node[0] in ("and", "or"):
        return (all if node[0] == "and" else any)(model(part, body) for part in node[1])
    if node[0] not in body:
        return bool(node[1] == "!=")
    return bool(OPERATORS[node[1]](body[node[0]], node[2]))


@given(tree, st.dictionaries(st.sampled_from("abc"), st.integers(-3, 3)))
def test_agrees_with_python(node: Any, body: dict[str, int]) -> None:
    record = FilterInput(None, json.dumps(body).encode())
    assert compile_filter(write(node)).matches(record) is model(node, body)


@pytest.mark.parametrize(
    ("policy", "scope", "matches"),
    [
        ({"tag": ["eu", "us"]}, "MessageAttributes", True),
        ({"tag": ["us"]}, "MessageAttributes", False),
        ({"tag": [{"prefix": "e"}], "trace": [{"exists": True}]}, "MessageAttributes", True),
        ({"nope": [{"exists": False}]}, "MessageAttributes", True),
        ({"tag": [{"anything-but": ["us"]}]}, "MessageAttributes", True),
        ({"tag": [{"anything-but": {"prefix": "e"}}]}, "MessageAttributes", False),
        ({"nope": [{"anything-but": ["us"]}]}, "MessageAttributes", False),
        ({"tag": [{"equals-ignore-case": "EU"}]}, "MessageAttributes", True),
        ({"amount": [{"numeric": [">=", 100, "<", 200]}]}, "MessageBody", True),
        ({"amount": [{"numeric": [">", 150]}]}, "MessageBody", False),
        ({"user": {"name": ["Ann"], "tags": ["b"]}}, "MessageBody", True),
        ({"$or": [{"amount": [1]}, {"ok": [True]}]}, "MessageBody", True),
        ({"none": [None]}, "MessageBody", True),
    ],
)
def test_sns_policies(policy: dict[str, Any], scope: Any, matches: bool) -> None:
    assert compile_policy(json.dumps(policy), scope).matches(ORDER) is matches


@pytest.mark.parametrize(
    "policy",
    ["", "[]", "{}", '{"a": "b"}', '{"a": [{"b": 1}]}', '{"a": []}', '{"a": {"b": ["c"]}}', '{"$or": []}'],
)
def test_bad_policies_are_refused(policy: str) -> None:
    with pytest.raises(FilterProblem):
        compile_policy(policy)


def test_times() -> None:
    assert rfc3339_ms("1970-01-01T00:00:00Z") == 0
    assert rfc3339_ms("2026-11-01") == 1_793_491_200_000
    assert rfc3339_ms("2026-11-01T01:00:00.5+01:00") == 1_793_491_200_500
    assert rfc3339_ms("2024-02-29T12:00Z") == 1_709_208_000_000
    assert rfc3339_ms("2025-02-29") is None and rfc3339_ms("never") is None


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ('{"tag": ["eu", "us"]}', True),
        (' {"tag": [{"anything-but": ["eu"]}]}', False),
        ('body {"amount": [{"numeric": [">", 100]}]}', True),
        ('body{"user": {"name": ["Bob"]}}', False),
        ('tag == "eu"', True),
    ],
)
def test_a_policy_is_a_filter_wherever_one_is_taken(text: str, matches: bool) -> None:
    wanted = compile_filter(text)
    assert wanted.matches(ORDER) is matches and wanted.expression == text
    assert compile_filter(wanted.expression).matches(ORDER) is matches


@pytest.mark.parametrize(
    "text", ["{", '{"a": 1}', "body {}", "body", 'body {"a": [{"odd": 1}]}', '{"a": {"b": ["c"]}}']
)
def test_what_is_no_policy_is_a_problem(text: str) -> None:
    with pytest.raises(FilterProblem) as problem:
        compile_filter(text)
    assert problem.value.pointed()
