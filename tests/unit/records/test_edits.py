"""Edits of a record: what they set, what they leave alone, and what they refuse."""

from __future__ import annotations

import pytest

from headrace.records.build import Record
from headrace.records.edits import CannotEdit, EditProblem, Edits


def edited(value: bytes | None, *texts: str, headers: tuple[tuple[str, bytes], ...] = ()) -> Record:
    return Edits(texts).apply(Record(b"k", value, headers))


def test_a_field_is_set_and_everything_else_stays_to_the_byte() -> None:
    before = b'{"id": 12345678901234567890, "price": 10.10, "to": {"country": "DE", "zip": "0123"}, "e": 1E5}'
    after = edited(before, 'value.to.country = "FR"', "value.to.n = 9007199254740993").value
    assert (
        after
        == b'{"id":12345678901234567890,"price":10.10,"to":{"country":"FR","zip":"0123","n":9007199254740993},"e":1E5}'
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('value = "plain"', b"plain"),
        ('value = {"a": 1}', b'{"a": 1}'),
        ("value = null", None),
        ("value[1] = 5", b"[1,5]"),
        ('value = "a = b"', b"a = b"),
    ],
)
def test_a_whole_value_or_an_entry(text: str, value: bytes | None) -> None:
    assert edited(b"[1,2]", text).value == value


def test_key_and_headers() -> None:
    found = edited(
        b"", 'key = "n"', 'headers["a.b"] = "1"', "header.old = null", headers=(("old", b"x"), ("kept", b"y"))
    )
    assert (found.key, found.headers) == (b"n", (("kept", b"y"), ("a.b", b"1")))


@pytest.mark.parametrize("value", [None, b"no json", b"[1]", b"7", b'{"to": 3}', b'{"to": {}', b"\xff"])
def test_what_it_does_not_fit_is_not_touched(value: bytes | None) -> None:
    with pytest.raises(CannotEdit):
        edited(value, 'value.to.country = "FR"')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "value",
        "value = ",
        "value == 1",
        "value.a = EUR",
        "offset = 1",
        "key.a = 1",
        'headers = "x"',
        'headers["headrace-dead-reason"] = "x"',
        'header.headrace-edited-by = "me"',
        "value.a = " + "[" * 5_000,
        "value = " + '"' + "x" * 70_000 + '"',
    ],
)
def test_what_is_no_edit_is_refused(text: str) -> None:
    with pytest.raises(EditProblem):
        Edits([text])
