"""5.3: error texts that differ only in numbers and ids are one."""

from __future__ import annotations

import pytest

from headrace.core.folding import MAX_CHARS, folded


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 not found", "order 18 not found"),
        ("no user 3f2b8c1e-7a64-4f0e-9d2c-1b2a3c4d5e6f", "no user 00000000-0000-4000-8000-000000000000"),
        ("connect to 10.0.0.4:5432 failed after 1.5 s", "connect to 10.0.0.17:5432 failed after 30 s"),
        ("object at 0x7f3a2c is gone", "object at 0x1 is gone"),
        ("commit 9fceb02d0ae598e95dc970b74767f19372d61af8 is bad", "commit 1111111111111111111111111111111111111111 is bad"),
        ("a\n  b 1", "a b 2"),
    ],
)  # fmt: skip
def test_alike_but_for_numbers_is_the_same(one: str, other: str) -> None:
    assert folded(one) == folded(other)


def test_words_stay_as_they_are() -> None:
    assert folded("timeout while reading the facade") == "timeout while reading the facade"
    assert folded("order 17 not found") == "order # not found"
    assert folded("") == ""


def test_a_long_text_is_cut() -> None:
    assert len(folded("x" * 100_000)) == MAX_CHARS
