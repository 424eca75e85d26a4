"""W19: what is masked is not in what leaves; a mask that does not fit hides too much, never too little."""

from __future__ import annotations

import pytest

from headrace.records.build import Record
from headrace.records.masks import Mask, mask_problem

SECRET = "4111-1111"


def seen(
    *paths: str,
    key: bytes | None = b"k",
    value: bytes | None = b"",
    headers: tuple[tuple[str, bytes], ...] = (),
) -> Record:
    return Mask(paths).apply(Record(key, value, headers=headers))


@pytest.mark.parametrize(
    ("paths", "value"),
    [
        (("value.card",), f'{{"card":"{SECRET}","n":1}}'),
        (("value.user.card",), f'{{"user":{{"card":"{SECRET}"}}}}'),
        (("value.user.card",), f'{{"user":[{{"card":"{SECRET}"}},{{"card":"{SECRET}"}}]}}'),
        (("value.card",), f'[{{"card":"{SECRET}"}},{{"n":1}},{{"card":"{SECRET}"}}]'),
        (("value.user",), f'{{"user":{{"card":"{SECRET}"}}}}'),
        (("value.card",), f"not JSON: {SECRET}"),
        (("value.card", "value.other"), f'{{"card":"{SECRET}","other":["{SECRET}"]}}'),
        (("value",), SECRET),
    ],
)
def test_w19_a_masked_field_is_not_in_what_is_shown(paths: tuple[str, ...], value: str) -> None:
    assert SECRET not in (seen(*paths, value=value.encode()).value or b"").decode()


def test_w19_what_is_not_masked_stays_as_it_was_to_the_byte() -> None:
    value = b'{ "n" : 1.0, "big": 123456789012345678901234567890 }'
    assert seen("value.card", value=value).value == value
    assert seen("header.auth", value=value).value == value
    assert seen("value.card", value=None).value is None


def test_w19_keys_and_headers_whatever_their_case() -> None:
    shown = seen("key", "header.Authorization", headers=(("authorization", b"Bearer x"), ("trace", b"t")))
    assert shown.key == b"***" and shown.headers == (("authorization", b"***"), ("trace", b"t"))
    assert seen("key", key=None).key is None


@pytest.mark.parametrize("path", ["", "header", "key.x", "header.", "value.", "payload", "values.x"])
def test_w19_what_is_no_place_is_refused(path: str) -> None:
    assert mask_problem([path]) is not None


def test_w19_places_are_taken() -> None:
    assert mask_problem(["key", "value", "value.a.b", "header.x"]) is None
