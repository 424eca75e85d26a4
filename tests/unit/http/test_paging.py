"""W9: lists are searched, sorted and paged by the server; a page neither repeats nor skips what another has."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import HeadraceError
from headrace.http.messages import Request
from headrace.http.rest.paging import matching, sorted_window

NAMES = st.lists(st.text("abcxyz.-", min_size=1, max_size=6), unique=True, max_size=30)


def pages(names: list[str], numbers: dict[str, float], **query: str | int) -> list[str]:
    found: list[str] = []
    cursor = None
    for _ in range(len(names) + 2):
        asked = {**query, **({} if cursor is None else {"cursor": cursor})}
        request = Request("GET", "/", query_string=urlencode(asked))
        shown, cursor, total = sorted_window(request, names, {"in": numbers.__getitem__})
        assert total == len(matching(str(query.get("q", "")), names))
        found += shown
        if cursor is None:
            return found
    raise AssertionError("there is always another page")


@given(NAMES, st.data(), st.sampled_from(["name", "-name", "in", "-in"]), st.integers(1, 7))
def test_all_pages_together_are_the_whole_list_in_order(
    names: list[str], data: st.DataObject, sort: str, limit: int
) -> None:
    numbers = {name: float(data.draw(st.integers(0, 3))) for name in names}
    found = pages(names, numbers, sort=sort, limit=limit)
    if sort.endswith("name"):
        assert found == sorted(names, reverse=sort.startswith("-"))
    else:
        sign = -1 if sort.startswith("-") else 1
        assert found == sorted(names, key=lambda name: (sign * numbers[name], name))


def test_words_are_looked_for_in_any_order_and_case() -> None:
    names = ["Orders.eu", "orders.us", "eu-payments", "clicks"]
    assert matching("EU ord", names) == ["Orders.eu"]
    assert matching("", names) == names and matching("nothing", names) == []


@pytest.mark.parametrize("query", ["sort=size", "sort=-", "sort=in&cursor=nonsense", "q=" + "x" * 201])
def test_what_makes_no_sense_is_refused(query: str) -> None:
    with pytest.raises(HeadraceError):
        sorted_window(Request("GET", "/", query_string=query), ["a"], {"in": lambda name: 0.0})
