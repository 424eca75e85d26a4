"""D3, X10, X12: a hostile expression or value costs no more than its size, and never an error of Python's."""

from __future__ import annotations

import pytest

from headrace.records.filters import FilterInput, FilterProblem, compile_filter, compile_policy
from headrace.records.filters.compile import MAX_CONDITIONS, MAX_SEEN_BYTES


@pytest.mark.parametrize(
    "expression",
    [
        "lower(" * 900 + "key" + ")" * 900,
        "(" * 2_000 + "true" + ")" * 2_000,
        "value.a > " + "9" * 5_000,
        "value.a[" + "9" * 5_000 + "] == 1",
        "value" + ".a" * 2_000 + " == 1",
        " or ".join(["true = true"] * (MAX_CONDITIONS + 1))[:8_000] + " or " * 100,
        "x" * 9_000,
        "tag in (" + "1," * 1_001 + "1)",
    ],
)
def test_what_is_too_much_is_a_problem_with_a_place(expression: str) -> None:
    with pytest.raises(FilterProblem) as problem:
        compile_filter(expression)
    assert 0 <= problem.value.position <= len(expression)


def test_a_filter_has_a_bounded_number_of_conditions() -> None:
    with pytest.raises(FilterProblem, match="conditions"):
        compile_filter("or ".join(["1<2 "] * (MAX_CONDITIONS + 1)))
    wanted = {f"n{number}": [number] for number in range(600)}
    with pytest.raises(FilterProblem):
        compile_policy({**wanted, "$or": [wanted, wanted]}, "MessageBody")


@pytest.mark.parametrize(
    "value",
    [
        b'{"a": ' + b"9" * 100_000 + b"}",
        b'{"a": 1e999999999}',
        b"[" * 500_000,
        b'{"a":' * 100_000,
        b'{"a": "' + b"\\u0000" * 50_000 + b'"}',
        b"\xff" * 1_000,
        b'{"a": NaN}',
    ],
)
def test_hostile_values_match_nothing_and_break_nothing(value: bytes) -> None:
    record = FilterInput(b"k", value)
    assert compile_filter("value.a == 1 or contains(value.a, 'zz')").matches(record) is False


def test_a_value_that_is_too_large_is_not_looked_into() -> None:
    large = FilterInput(b"k", b'{"a": "' + b"x" * MAX_SEEN_BYTES + b'"}')
    assert compile_filter("value.a is null and value is null and size > 1").matches(large)


def test_the_worst_filter_on_the_worst_value_ends_soon() -> None:
    """A thousand searches through as much as a filter looks into take seconds, not hours: it ends at all."""
    terms = " or ".join(["contains(lower(value),'zq')"] * 250)
    record = FilterInput(b"k", b"Z" * 200_000)
    assert compile_filter(terms).matches(record) is False
